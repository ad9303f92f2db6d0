"""The databases that the `sql` sink is held to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sinks.sql.databases import KINDS, SqlBench, sql_bench


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlBench]:
    kind: str = request.param
    servers = {"postgresql": "postgres", "mariadb": "mariadb"}
    address = request.getfixturevalue(servers[kind]) if kind in servers else None
    with sql_bench(kind, address, tmp_path) as bench:
        yield bench
