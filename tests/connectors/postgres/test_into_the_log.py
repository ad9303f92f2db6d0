"""From PostgreSQL through the log into a table: whole after compaction, and nothing twice."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_column, header_lists
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.assembly import run_task
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

FILE = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.*]}}
log: {{history: 0s, delete_retention: 0s}}
sink: {{type: sql, url: "sqlite:///target.db"}}
"""
PAGES = TopicPartition("shop.public.pages", 0)
COMPACTS_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.01",
    "max.message.bytes": "67108864",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
LARGE = "repeat('0123456789', 1000)"
ONE_READ = FetchLimit(64 << 20)


@dataclass(frozen=True, slots=True)
class Flow:
    guest: Guest
    log: EmbeddedLog
    loaded: LoadedPipeline
    directory: Path

    async def run(self, task: str) -> None:
        """Until what is there now has been read, or applied."""
        await run_task(task_run(self.loaded, task, self.log))

    async def tell(self, *statements: str) -> None:
        self.guest.execute(*statements)
        await self.run("source")

    async def read(self, partition: TopicPartition = PAGES) -> RecordColumns:
        bounds = (await self.log.bounds([partition]))[partition]
        data, offset = bytearray(), bounds.start
        while offset < bounds.stable:
            [part] = await self.log.fetch(
                {partition: offset}, limit=ONE_READ, isolation=Isolation.COMMITTED
            )
            data += part.data
            offset = part.next_offset
        return arrow_codec.decode(bytes(data))

    async def compacted(self, *, keys: int) -> RecordColumns:
        """Comes in its own time; the newest segment is never compacted."""
        while True:
            found = await self.read()
            if len(found) <= keys + 1:
                return found
            await asyncio.sleep(0.05)

    def target(self, question: str) -> list[Any]:
        with closing(sqlite3.connect(self.directory / "target.db")) as database:
            return database.execute(question).fetchall()


@pytest.fixture
async def flow(guest: Guest, tmp_path: Path) -> AsyncIterator[Flow]:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url))
    [loaded] = load(file, environment={})
    log = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", housekeeping_interval_ms=50)
    )
    try:
        yield Flow(guest, log, loaded, tmp_path)
    finally:
        await log.close()


async def test_records_left_by_compaction_fold_to_the_source(flow: Flow) -> None:
    await flow.log.ensure_topic(TopicSettings(name=PAGES.topic, config=COMPACTS_SOON))
    await flow.tell(f"INSERT INTO pages SELECT i, 'a', {LARGE} || i FROM generate_series(1, 3) i")
    for title in "bcd":
        await flow.tell(f"UPDATE pages SET title = '{title}'")
    await flow.tell("INSERT INTO pages VALUES (4, 'end', 'short')")

    left = await flow.compacted(keys=4)
    await flow.run("sql")

    newest = {key: orjson.loads(value)["after"] for key, value in pairs(left)}
    assert len(newest) == 4 and all(row["body"] for row in newest.values())
    question = "SELECT id, title, body FROM pages ORDER BY id"
    assert flow.target(question) == flow.guest.rows(question)


async def test_a_row_of_megabytes_goes_through(flow: Flow) -> None:
    noise = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100000) i)"
    await flow.tell(f"INSERT INTO pages SELECT 1, 'a', {noise}")
    await flow.tell("UPDATE pages SET title = 'b'", f"INSERT INTO pages SELECT 2, 'a', {noise}")

    await flow.run("sql")

    question = "SELECT id, title, body FROM pages ORDER BY id"
    assert flow.target(question) == flow.guest.rows(question)


async def test_records_say_where_their_change_stands_and_none_is_there_twice(flow: Flow) -> None:
    await flow.tell(f"INSERT INTO pages SELECT i, 'a', {LARGE} FROM generate_series(1, 3) i")
    await flow.tell("UPDATE pages SET title = 'b' WHERE id = 1")
    await flow.tell("UPDATE pages SET id = 30 WHERE id = 3", "DELETE FROM pages WHERE id = 2")

    found = await flow.read()

    places = header_column(found.headers, "headwater.at").to_pylist()
    streamed = [(at, key, value) for at, (key, value) in zip(places, pairs(found), strict=True)]
    assert max(Counter(streamed).values()) == 1
    headers = [
        {pair["key"].decode(): pair["value"] for pair in each}
        for each in header_lists(found.headers).to_pylist()
    ]
    rows = found.keys.to_pylist()
    assert [headers[at].get("headwater.reselected") for at in range(len(rows))].count(b"body") == 2
    gone, tombstone, there = (headers[at] for at, key in enumerate(rows) if b"3" in key and at > 3)
    assert gone["__debezium.newkey"] == tombstone["__debezium.newkey"] == b'{"id":30}'
    assert there["__debezium.oldkey"] == b'{"id":3}'
    assert "__debezium.oldkey" not in gone


async def test_the_target_follows_through_restarts_after_every_step(flow: Flow) -> None:
    steps = (
        f"INSERT INTO pages SELECT i, 'a', {LARGE} FROM generate_series(1, 20) i",
        "UPDATE pages SET title = 'b' WHERE id < 10",
        "BEGIN; UPDATE pages SET id = id + 100 WHERE id < 5;"
        " DELETE FROM pages WHERE id = 7; COMMIT",
        "ALTER TABLE pages ADD n int DEFAULT 5",
        "UPDATE pages SET title = 'c' WHERE id % 2 = 0",
        "TRUNCATE pages",
        "INSERT INTO pages VALUES (1, 'last', 'x', 9)",
    )
    question = "SELECT id, title, body FROM pages ORDER BY id"

    for step in steps:
        await flow.tell(step)
        await flow.run("sql")

        assert flow.target(question) == flow.guest.rows(question), step


async def test_changes_in_the_log_are_confirmed_even_as_a_run_ends(flow: Flow) -> None:
    await flow.tell("INSERT INTO pages VALUES (1, 'a', 'x')")

    flow.guest.execute("INSERT INTO pages VALUES (2, 'a', 'x')")
    [(place,)] = flow.guest.rows("SELECT pg_current_wal_lsn()")  # of all databases together
    await flow.run("source")

    [(is_confirmed,)] = flow.guest.rows(
        f"SELECT confirmed_flush_lsn >= '{place}' FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    assert is_confirmed


async def test_messages_transactions_and_heartbeats_have_topics_of_their_own(flow: Flow) -> None:
    await flow.tell("SELECT pg_logical_emit_message(true, 'mine', 'said')")

    await flow.tell("SELECT pg_logical_emit_message(true, 'mine', 'said')")

    found = await flow.read(TopicPartition("shop.message", 0))
    assert [orjson.loads(value)["op"] for value in found.values.to_pylist()] == ["m"]
    assert found.keys.to_pylist() == [b'{"prefix":"mine"}']


def pairs(columns: RecordColumns) -> list[tuple[bytes, bytes]]:
    return list(zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True))
