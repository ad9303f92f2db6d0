"""A database that nobody has prepared for keeps the contract as well, if slowly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import RebuildNeeded
from headwater.sinks.sql import target
from headwater.sinks.sql.dialects.generic import GenericDialect
from tests.contract.sink_suite import Bench, SinkContract
from tests.sinks.sql.databases import SqlBench, sql_bench


class TestGenericDialect(SinkContract):
    @pytest.fixture
    def bench(
        self, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SqlBench]:
        monkeypatch.setattr(target, "dialect_of", GenericDialect)
        with sql_bench("postgresql", postgres, tmp_path) as bench:
            yield bench

    async def test_a_decimal_of_more_digits_is_a_wider_one(self, bench: Bench) -> None:
        """No statement changes a type in every database: the table is made anew."""
        with pytest.raises(RebuildNeeded, match="cannot change the column in place"):
            await super().test_a_decimal_of_more_digits_is_a_wider_one(bench)
