"""A table that loses its key is held alone, and is right again once it has one."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.postgres.doctor.slots import examine_position
from headwater.connectors.postgres.publication.monitor import HELD
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Control, Remark, SourceReport
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import BeingReadAgain, SourceRejected
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.changes import Phase, Positions
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.replacements import check_not_reread
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.reports import TaskState
from tests.connectors.postgres.schema_history.test_cross_over import CREATE, Crossing
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

FILE = """
pipeline: shop
source:
  type: postgres
  url: "{url}"
  tables: [public.*]
  heartbeat: 200ms
  {keys}
sink: {sinks}
"""
SINKS = "[{type: sql, url: 'sqlite:///target.db'}, {type: spark, path: ./lake}]"
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY)"
LOSE = "ALTER TABLE items DROP CONSTRAINT items_pkey"
ITEMS = TableId("public", "items")
TWICE = "INSERT INTO items VALUES (1, 'twice', 1)"


class Holding(Crossing):
    """Its file can be edited."""

    def edit(self, *, keys: str = "", sinks: str = SINKS) -> None:
        file = self.directory / "pipeline.yaml"
        file.write_text(FILE.format(url=self.guest.url, keys=keys, sinks=sinks))
        [self.loaded] = load(file, environment={})

    def orders(self) -> list[Any]:
        with closing(sqlite3.connect(self.directory / "target.db")) as database:
            return list(database.execute("SELECT id FROM orders"))


@pytest.fixture
async def holding(guest: Guest, tmp_path: Path) -> AsyncIterator[Holding]:
    guest.execute(*CREATE, ORDERS)
    guest.publish("items", "orders")
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))
    try:
        found = Holding(guest, log, None, tmp_path, [])  # type: ignore[arg-type]
        found.edit()
        yield found
    finally:
        await log.close()


CURES = {
    "another key": ["ALTER TABLE items ADD PRIMARY KEY (id, a)"],
    "another column": [
        "ALTER TABLE items DROP id",
        "ALTER TABLE items ADD id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    ],
    "one of the file": ["ALTER TABLE items REPLICA IDENTITY FULL"],
}


@pytest.mark.parametrize("name", CURES)
async def test_a_table_that_lost_its_key_is_held_alone_until_it_has_one(
    holding: Holding, name: str
) -> None:
    await holding.run()

    await holding.run(
        LOSE,
        "INSERT INTO items VALUES (1, 'twice', 1), (2, 'twice', 2)",
        "INSERT INTO orders VALUES (7)",
    )
    held = [each for each in holding.states if each.table == "public.items"]
    with pytest.raises(BeingReadAgain, match="has lost its key"):
        await check_not_reread(holding.log, "shop", [ITEMS])
    others = holding.orders()
    if name == "one of the file":
        holding.edit(keys="keys: {public.items: [id, a]}")
    late = "(a, b) VALUES (" if "column" in name else "(id, a, b) VALUES (60, "
    await holding.run(*CURES[name], f"INSERT INTO items {late}'late', 99)")
    await holding.run("UPDATE items SET b = -b WHERE b > 40", "DELETE FROM items WHERE b = 9")

    assert others == [(7,)]
    assert [(each.task, each.state) for each in held][-1] == (SOURCE, TaskState.REREADING)
    assert holding.targets("id, a, b") == holding.source("id, a, b")
    await check_not_reread(holding.log, "shop", [ITEMS])


async def test_a_table_that_gets_its_first_key_goes_on_in_another_topic(holding: Holding) -> None:
    holding.edit(sinks="[{type: sql, url: 'sqlite:///target.db', tables: {'*': {mode: append}}}]")
    holding.guest.execute(LOSE, "ALTER TABLE items REPLICA IDENTITY FULL")
    await holding.run_task(SOURCE)

    holding.guest.execute(
        "ALTER TABLE items ADD PRIMARY KEY (id)", "DELETE FROM items WHERE id = 9"
    )
    await holding.run_task(SOURCE)
    await holding.run_task(SOURCE)

    stored = await topics_of(holding.log, "shop")
    assert stored["shop.public.items.g2"].schema.key == ("id",)
    await check_not_reread(holding.log, "shop", [ITEMS])


LOSSES = {
    "a dropped constraint": (
        [LOSE, TWICE],
        ["DELETE FROM items WHERE a = 'twice'", "ALTER TABLE items ADD PRIMARY KEY (id)"],
    ),
    "a dropped column": (
        ["ALTER TABLE items DROP id", "INSERT INTO items (a, b) VALUES ('twice', 1)"],
        ["ALTER TABLE items ADD id serial", "ALTER TABLE items ADD PRIMARY KEY (id, a)"],
    ),
}


@pytest.mark.parametrize("name", LOSSES)
async def test_a_table_of_a_running_source_waits_for_a_key_and_goes_on(
    guest: Guest, name: str
) -> None:
    loss, cure = LOSSES[name]
    guest.execute(*CREATE, ORDERS, "ALTER TABLE items REPLICA IDENTITY FULL")
    guest.publish("items", "orders")
    folded, said = Folded(), list[SourceReport]()
    await until_equal(folded, guest)
    given = {"url": guest.url, "tables": ["public.*"], "heartbeat": "200ms"}
    context = replace(source_context(), settle_ms=0, report=said.append)
    source = PostgresSource(PostgresSettings.model_validate(given), context)

    phases, is_cured = list[Phase](), False
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        folded.take(await anext(batches))
        await guest.run(*loss)
        async for batch in batches:
            folded.take(batch)
            phases += [each.phase for each in batch.replacements]
            if Phase.PENDING in phases and not is_cured:  # heartbeat and stream may both find it
                with pytest.raises(SourceRejected, match="does not capture this table"):
                    await source.control(Control("again", "snapshot", ITEMS))
                await guest.run(*cure, "INSERT INTO orders VALUES (7)")
                is_cured = True
            if Phase.COMPLETE in phases:
                break
    await until_equal(folded, guest)

    held = [each.finding for each in said if isinstance(each, Remark) and each.name == HELD]
    assert [None if each is None else each.left_out for each in held] == [
        ("public.items",),
        None,
    ]
    assert not differing(folded, guest, "items") and not differing(folded, guest, "orders")


@pytest.mark.parametrize("leaves", [False, True], ids=["published", "not published"])
async def test_doctor_names_it_and_what_gives_it_back(guest: Guest, leaves: bool) -> None:
    guest.execute(*CREATE, ORDERS, "ALTER TABLE items REPLICA IDENTITY FULL")
    guest.publish("items", "orders")
    folded = Folded()
    await until_equal(folded, guest, url=guest.owner)
    guest.execute(LOSE, "INSERT INTO items VALUES (60, 'late', 60)")
    if leaves:
        guest.execute("ALTER PUBLICATION headwater_shop DROP TABLE items")

    async def stored() -> Positions:
        return folded.positions

    settings = PostgresSettings.model_validate({"url": guest.owner, "tables": ["public.*"]})
    found = await examine_position(settings, "shop", stored)
    await until_equal(folded, guest, url=guest.owner)
    guest.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
    if leaves:
        guest.execute("ALTER PUBLICATION headwater_shop ADD TABLE items")
    cured = await examine_position(settings, "shop", stored)
    await until_equal(folded, guest, url=guest.owner)

    [finding] = found
    assert finding.left_out == ("public.items",) and not finding.is_fatal
    assert "under `keys` of the source" in finding.hint
    assert not cured and not differing(folded, guest, "items")
