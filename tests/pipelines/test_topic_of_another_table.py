"""A topic belongs to the table that wrote it first, over restarts as well."""

from pathlib import Path
from typing import Any

from headwater.pipelines.journal.schemas import read_schemas, schemas_home
from headwater.pipelines.terminal import exit_codes
from tests.databases import Guest
from tests.pipelines.test_dropped_table import POSTGRES
from tests.pipelines.time_travel.verify.test_verify import execute, rows
from tests.pipelines.time_travel.world import World, tell

TOPIC = "shop.public.order_items"


def test_a_later_table_of_the_same_topic_name_is_left_out_alone(
    guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    text, file = POSTGRES.format(url=guest.owner), tmp_path / "pipeline.yaml"

    async def run(world: World) -> Any:
        await world.run()

    async def tables(world: World) -> Any:
        found = read_schemas(world.log, schemas_home(TOPIC))
        return {str(each.schema.table) async for each in found if each.topic == TOPIC}

    guest.execute(
        "CREATE TABLE order_items (id int PRIMARY KEY, note text)",
        "INSERT INTO order_items VALUES (1, 'a')",
        "CREATE TABLE orders (id int PRIMARY KEY)",
    )
    tell(tmp_path, text, run)
    guest.until_nobody_streams()
    guest.execute(
        'CREATE TABLE "order items" (id int PRIMARY KEY, note text)',
        "INSERT INTO \"order items\" VALUES (1, 'b')",
        "INSERT INTO orders VALUES (1)",
    )

    planned = headwater("plan", file)
    ran = headwater("run", "--once", file)
    guest.until_nobody_streams()

    assert planned.code == exit_codes.DIFFERENT and "1 table cannot be planned" in planned.remarks
    assert "public.order items cannot be planned in the log:" in planned.data
    assert (
        "two tables have the same topic name" in planned.data
        and "shop.public.orders" in planned.data
    )
    assert ran.code == exit_codes.DIFFERENT and "two tables have the same topic name" in ran.remarks
    assert tell(tmp_path, text, tables) == {"public.order_items"}
    assert rows(tmp_path / "target.db", "SELECT * FROM orders") == [(1,)]


SQLITE = """
pipeline: shop
log: {path: data, fsync: never, topic: "shop.public.{table}"}
source: {type: sql, url: "sqlite:///source.db", tables: ["*"]}
sink: {type: sql, url: "sqlite:///target.db"}
"""


def test_the_first_of_two_tables_of_one_topic_name_is_captured_at_the_first_start(
    guest: Guest, tmp_path: Path, headwater: Any
) -> None:
    guest.execute(*TWO_OF_ONE_NAME)

    _first_is_captured(POSTGRES.format(url=guest.owner), guest.execute, tmp_path, headwater)
    guest.until_nobody_streams()


def test_the_first_of_two_polled_tables_of_one_topic_name_is_captured(
    tmp_path: Path, headwater: Any
) -> None:
    def change(*statements: str) -> None:
        execute(tmp_path / "source.db", *statements)

    change(*TWO_OF_ONE_NAME)

    _first_is_captured(SQLITE, change, tmp_path, headwater)


TWO_OF_ONE_NAME = (
    "CREATE TABLE order_items (id int PRIMARY KEY, note text)",
    "INSERT INTO order_items VALUES (1, 'a')",
    'CREATE TABLE "order items" (id int PRIMARY KEY, note text)',
    "INSERT INTO \"order items\" VALUES (1, 'b')",
    "CREATE TABLE orders (id int PRIMARY KEY)",
    "INSERT INTO orders VALUES (1)",
)


def _first_is_captured(text: str, change: Any, tmp_path: Path, headwater: Any) -> None:
    """One of the two alone is in the log, the same one after a restart; the other is told."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)

    async def tables(world: World) -> Any:
        found = read_schemas(world.log, schemas_home(TOPIC))
        return {each.schema.table.name async for each in found if each.topic == TOPIC}

    ran = headwater("run", "--once", file)
    first = tell(tmp_path, text, tables)
    others = rows(tmp_path / "target.db", "SELECT id FROM orders")
    change("INSERT INTO orders VALUES (2)")
    again = headwater("run", "--once", file)

    for each in (ran, again):
        assert each.code == exit_codes.DIFFERENT
        assert "two tables have the same topic name" in each.remarks
    assert others == [(1,)]
    assert len(first) == 1 and tell(tmp_path, text, tables) == first
    assert rows(tmp_path / "target.db", "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
