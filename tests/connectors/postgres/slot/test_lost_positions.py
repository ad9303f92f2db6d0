"""A lost position stops the pipeline in words; where the file says so, tables are emptied and read
again, so that what was deleted unseen is gone from the targets as well."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import load
from headwater.pipelines.preview import doctor_checks
from headwater.pipelines.preview.doctor_checks import DoctorResult, examine_pipeline
from headwater.pipelines.running.first_checks import checked_first
from scripts.embedded_postgres import POLL_S
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

PIPELINE = """
pipeline: shop
source:
  type: postgres
  url: {url}
  tables: [public.*]
  position_mismatch: {mismatch}
sink: {{type: sql, url: "sqlite:///shop.db", commit_every: 0s}}
"""
DROP = "SELECT pg_drop_replication_slot('headwater_shop')"
MAKE = "SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')"
ADVANCE = "SELECT pg_replication_slot_advance('headwater_shop', pg_current_wal_lsn())"
UNSEEN = (
    "DELETE FROM orders WHERE id < 5",
    "UPDATE orders SET note = 'unseen' WHERE id = 7",
    "INSERT INTO orders VALUES (31, 'unseen')",
    "DELETE FROM emptied",
)


@pytest.mark.parametrize(
    ("accident", "why"),
    [
        ([DROP, *UNSEEN], "the replication slot is gone"),
        ([DROP, *UNSEEN, MAKE], "made it anew"),
        ([*UNSEEN, ADVANCE], "somebody else has read from it"),
    ],
    ids=["dropped", "made anew", "read by somebody else"],
)
async def test_missed_changes_are_never_passed_over(
    guest: Guest, tmp_path: Path, accident: list[str], why: str
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'seen' FROM generate_series(1, 30) g",
        "INSERT INTO emptied VALUES (1, 'seen')",
    )
    guest.publish()
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=guest.url, mismatch="stop"))
    await run_once(file)
    before = rows_of(tmp_path)
    guest.until_nobody_streams()
    guest.execute(*accident)

    foreseen = await said_of(file)
    with pytest.raises(PositionLost, match=why) as lost:
        await run_once(file)
    file.write_text(PIPELINE.format(url=guest.url, mismatch="resnapshot"))
    cured = await said_of(file)
    await run_once(file)
    guest.execute("INSERT INTO orders VALUES (32, 'after')")
    await run_once(file)

    assert "position_mismatch: resnapshot" in lost.value.hint
    assert [(each.problem, each.hint) for each in foreseen if each.is_fatal] == [
        (lost.value.statement, lost.value.hint)
    ]
    assert [(each.problem, each.is_fatal) for each in cured] == [(lost.value.statement, False)]
    assert [each.problem for each in await said_of(file)] == [""], "all is well in the end"
    assert len(before["orders"]) == 30 and len(before["emptied"]) == 1
    assert rows_of(tmp_path) == {
        table: guest.rows(f"SELECT id, note FROM {table} ORDER BY id") for table in before
    }


OTHER_KEYS = {
    "altered": ["ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, note)"],
    "made anew": [
        "DROP TABLE orders",
        "CREATE TABLE orders (id int, note text, PRIMARY KEY (note, id))",
    ],
}


@pytest.mark.parametrize("accident", [[DROP], ["DROP PUBLICATION headwater_shop"], []])
@pytest.mark.parametrize("name", OTHER_KEYS)
async def test_rows_under_another_key_do_not_enter_the_topic_of_the_lost_position(
    guest: Guest, tmp_path: Path, name: str, accident: list[str]
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, 'seen' FROM generate_series(1, 30) g",
        "INSERT INTO emptied VALUES (1, 'seen')",
    )
    guest.publish()
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=guest.url, mismatch="resnapshot"))
    await run_once(file)
    guest.until_nobody_streams()

    guest.execute(*accident, *OTHER_KEYS[name], "INSERT INTO orders VALUES (1, 'a'), (1, 'b')")
    if "PUBLICATION" in "".join(accident):
        guest.publish()
    await run_once(file)
    guest.execute("INSERT INTO orders VALUES (2, 'after')", "DELETE FROM orders WHERE note = 'a'")
    await run_once(file)

    assert rows_of(tmp_path) == {
        table: guest.rows(f"SELECT id, note FROM {table} ORDER BY id, note")
        for table in ("orders", "emptied")
    }


async def test_a_log_that_has_not_run_yet_has_lost_nothing(guest: Guest, tmp_path: Path) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    guest.publish()
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=guest.url, mismatch="stop"))

    found = await said_of(file)

    assert [each.problem for each in found] == [""]
    assert not (tmp_path / "data").exists()


async def test_a_slot_that_went_when_the_rows_were_read_is_not_missed(
    guest: Guest, tmp_path: Path
) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)", "INSERT INTO orders VALUES (1)"
    )
    guest.publish()
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        PIPELINE.format(url=guest.url, mismatch="stop\n  snapshot: {mode: initial_only}")
    )
    await run_once(file)

    found = await said_of(file)

    assert not guest.rows("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")
    assert [each.problem for each in found] == [""]


async def test_a_log_that_cannot_be_asked_is_said(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    guest.publish()
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        PIPELINE.format(url=guest.url, mismatch="stop")
        + "log: {type: kafka, bootstrap: '127.0.0.1:1'}\n"
    )
    monkeypatch.setattr(doctor_checks, "LOG_S_MAX", 0.5)

    [found] = await said_of(file)

    assert "the log does not answer" in found.problem and found.is_fatal


async def test_a_pipeline_of_the_same_name_with_another_log(guest: Guest, tmp_path: Path) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    guest.publish()
    files = [tmp_path / name / "pipeline.yaml" for name in ("first", "second")]
    for file in files:
        file.parent.mkdir()
        file.write_text(PIPELINE.format(url=guest.url, mismatch="stop"))
    await run_once(files[0])
    guest.until_nobody_streams()

    own, [at_rest] = await said_of(files[0]), await said_of(files[1])
    source = PostgresSource(
        PostgresSettings(url=SecretStr(guest.url), tables=("public.*",)), source_context()
    )
    async with streaming(source, guest):
        own += await said_of(files[0])
        [reading] = await said_of(files[1])
    guest.execute(re.findall(r"SELECT pg_drop[^;]*;", at_rest.hint)[0])

    assert [each.problem for each in own] == ["", ""]
    assert "this log has no position of it" in at_rest.problem and not at_rest.is_fatal
    assert "slot.name" in at_rest.hint
    assert "with another log, streams from slot headwater_shop" in reading.problem
    assert reading.is_fatal
    assert [each.problem for each in await said_of(files[1])] == [""]


@asynccontextmanager
async def streaming(source: PostgresSource, guest: Guest) -> AsyncIterator[None]:
    """It goes on from where the slot stands."""
    at = guest.value(
        "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'headwater_shop'"
    )

    async def read() -> None:
        async for _ in source.changes({"stream": at}):
            pass

    task = asyncio.ensure_future(read())
    try:
        while not guest.value(
            "SELECT active FROM pg_replication_slots WHERE slot_name = 'headwater_shop'"
        ):
            assert not task.done(), "it does not stream"
            await asyncio.sleep(POLL_S)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        guest.until_nobody_streams()


async def said_of(file: Path) -> list[DoctorResult]:
    """What the doctor says of the source."""
    [loaded] = load(file, environment={})
    return [each for each in await examine_pipeline(loaded) if each.what == "shop source"]


async def run_once(file: Path) -> None:
    """The source to the end of what there is, then the target."""
    [loaded] = load(file, environment={})
    settings = BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1)
    log = await EmbeddedLog.open(settings)
    try:
        for task in ("source", "sql"):
            await checked_first()(task_run(loaded, task, log))
    finally:
        await log.close()


def rows_of(directory: Path) -> dict[str, list[tuple[int, str]]]:
    with closing(sqlite3.connect(directory / "shop.db")) as target:
        return {
            table: target.execute(f"SELECT id, note FROM {table} ORDER BY id, note").fetchall()
            for table in ("orders", "emptied")
        }
