"""The databases that the `sql` source reads."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.connectors.sql.shop import KINDS, Shop
from tests.databases import database_in

_numbers = count(1)


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """An empty database."""
    kind: str = request.param
    if kind == "sqlite":
        yield Shop(kind, "sqlite:///shop.db", tmp_path)
        return
    servers = {"postgresql": "postgres", "mariadb": "mariadb"}
    address: str = request.getfixturevalue(servers[kind])
    with database_in(address, f"s{next(_numbers)}") as url:
        shop = Shop(kind, url, tmp_path)
        yield shop
        shop.engine.dispose()
