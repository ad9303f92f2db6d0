"""A table without a key is read again as a whole, and said to be so, as any other one."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.replacements import last_replacements
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.reports import TaskState
from tests.connectors.postgres.schema_history.test_cross_over import CREATE, FILE, Crossing
from tests.databases import Guest

WHY = "the column c was added with values in the rows that were there"


@pytest.fixture
async def crossing(guest: Guest, tmp_path: Path) -> AsyncIterator[Crossing]:
    guest.execute(
        *CREATE,
        "ALTER TABLE items DROP CONSTRAINT items_pkey",
        "ALTER TABLE items REPLICA IDENTITY FULL",
    )
    guest.publish("items")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url, mode="append"))
    [loaded] = load(file, environment={})
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))
    try:
        yield Crossing(guest, log, loaded, tmp_path, [])
    finally:
        await log.close()


def since_the_last_truncate(directory: Path) -> list[Any]:
    columns = "id, a, b, c, _headwater_op"
    with closing(sqlite3.connect(directory / "target.db")) as database:
        rows = [*database.execute(f"SELECT {columns} FROM items ORDER BY _headwater_offset")]
    start = max(place for place, row in enumerate(rows) if row[-1] == "t")
    return sorted((row[:-1] for row in rows[start + 1 :]), key=repr)


async def test_a_table_without_a_key_is_read_again_and_says_so(crossing: Crossing) -> None:
    await crossing.run()

    await crossing.run("ALTER TABLE items ADD c int DEFAULT 7", "INSERT INTO items VALUES (51)")

    of_table = [each for each in crossing.states if each.task == SOURCE and each.table]
    last = last_replacements(await load_positions(crossing.log, "shop"))
    assert [each.state for each in of_table] == [
        TaskState.REREADING,
        TaskState.REREADING,
        TaskState.RUNNING,
    ]
    assert of_table[0].reason == f"{WHY}; its rows wait to be read again"
    assert of_table[1].reason.startswith(f"{WHY} (about ")
    [ended] = last.values()
    assert ended.has_ended and ended.why == of_table[1].reason
    assert since_the_last_truncate(crossing.directory) == crossing.source("id, a, b, c")
