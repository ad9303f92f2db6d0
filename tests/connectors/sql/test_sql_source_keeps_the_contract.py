"""The `sql` source keeps every promise of a source that repeats what it cannot be sure of."""

from pathlib import Path

import pytest

from headwater.connectors.source import Source
from tests.connectors.sql.shop import Shop
from tests.contract.source_suite import SourceGround, SourceSuite

ORDERS = 25


class SqlGround:
    """A table with a cursor and one without."""

    change_count = ORDERS + 3
    is_exact = False

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        shop.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, note VARCHAR(20), version INTEGER "
            "NOT NULL)",
            "CREATE TABLE parts (name VARCHAR(20) PRIMARY KEY, red SMALLINT)",
            "INSERT INTO parts VALUES ('red', 255), ('blue', 0), ('grey', NULL)",
            *(f"INSERT INTO orders VALUES ({n}, 'note {n}', {n // 3})" for n in range(ORDERS)),
        )

    def open(self) -> Source:
        return self._shop.source(
            until_end=False,
            cursor={"orders": ["version"]},
            batch_rows=4,
            tables=["*orders", "*parts"],
        )

    def outside(self) -> object:
        with self._shop.engine.connect() as connection:
            return [
                connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY 1").fetchall()
                for table in ("orders", "parts")
            ]

    def held(self) -> object:
        """Sockets and files of this process: a server notices a little later that one is closed."""
        places = (
            str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
        )
        return sum(place.startswith("socket:") or place.endswith(".db") for place in places)


class TestSqlSource(SourceSuite):
    @pytest.fixture
    def ground(self, shop: Shop) -> SourceGround:
        return SqlGround(shop)
