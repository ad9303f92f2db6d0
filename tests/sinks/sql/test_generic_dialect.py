"""A database that nobody has prepared for keeps the contract as well, if slowly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks.sql import target
from sinks.sql.dialects.generic import GenericDialect
from tests.contract.sink_suite import SinkContract
from tests.sinks.sql.databases import SqlBench, sql_bench


class TestGenericDialect(SinkContract):
    @pytest.fixture
    def bench(
        self, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SqlBench]:
        monkeypatch.setattr(target, "dialect_of", GenericDialect)
        with sql_bench("postgresql", postgres, tmp_path) as bench:
            yield bench
