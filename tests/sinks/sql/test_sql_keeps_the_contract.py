"""The `sql` sink keeps every promise of a sink, on every database it is tested with."""

from tests.contract.sink_suite import SinkContract


class TestSqlSink(SinkContract):
    pass
