"""Rows that are read while users write end, with the stream, as the table: whatever happens."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from random import Random
from typing import Any

import psycopg
import pytest

from headwater.connectors.postgres.snapshot import deduplication_window
from headwater.connectors.postgres.snapshot.chunk_reader import ChunkReader
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.source import Control, Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.model.table_schema import TableId
from tests.budget import PATIENCE_S
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    Told,
    differing,
    in_table,
    live,
    source_of,
    until_equal,
)
from tests.connectors.postgres.snapshot.writer import AUDIT, KEYS, ORDERS, writers
from tests.databases import Guest

ORDERS_ID = TableId("public", "orders")


@pytest.mark.parametrize("seed", range(2))
async def test_a_snapshot_that_is_killed_again_and_again_goes_on(guest: Guest, seed: int) -> None:
    guest.execute(*ORDERS, *AUDIT)
    guest.publish()
    random, folded = Random(seed), Folded()

    with writers(guest, seed=seed):
        for _ in range(5):
            await live(folded, source_of(guest), batches=random.randrange(2, 25))
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert not differing(folded, guest, "audit")
    reads = [place for table, place in folded.reads if table == "orders"]
    assert len(reads) == len(set(reads)), "finished work is not read again"


async def test_rows_beyond_the_limits_of_memory_are_read_again(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication_window, "TOUCHED_BYTES_MAX", 100)
    monkeypatch.setattr(deduplication_window, "HELD_BYTES_MAX", 40)
    guest.execute(*ORDERS, *AUDIT)
    guest.publish()
    folded = Folded()

    with writers(guest, seed=5):
        await live(folded, source_of(guest), batches=3)
        await live(folded, source_of(guest), batches=60)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert not differing(folded, guest, "audit")


async def test_a_table_that_is_added_to_the_file_is_read_beside_the_others(guest: Guest) -> None:
    guest.execute(*AUDIT)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(*ORDERS)

    with writers(guest, seed=7):
        await live(folded, source_of(guest), batches=40)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert not differing(folded, guest, "audit")
    assert not [place for table, place in folded.reads if table == "audit" and place[0] > 1_000]


async def test_rows_written_before_a_table_was_published_are_read(guest: Guest) -> None:
    """Such changes are never streamed, even where their transaction ends much later."""
    guest.execute(*ORDERS, *AUDIT)
    guest.publish("orders")
    folded = Folded()
    await until_equal(folded, guest, tables=["public.orders"])

    with psycopg.connect(guest.owner) as late:
        late.execute("INSERT INTO audit VALUES (-1, 'before')")
        guest.execute("ALTER PUBLICATION headwater_shop ADD TABLE audit")
        late.execute("INSERT INTO audit VALUES (-2, 'after')")
        reading = asyncio.ensure_future(until_equal(folded, guest))
        await until(lambda: reading.done() or looks_for_writers(guest))
        late.commit()
    await reading

    assert not differing(folded, guest, "audit")


async def test_a_wish_has_a_table_read_again_while_it_changes(guest: Guest) -> None:
    guest.execute(*ORDERS, *AUDIT)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    first = len(folded.reads)
    folded.tables["orders"].clear()  # as if somebody had broken the log

    with writers(guest, seed=3):
        await wished(folded, guest, {"action": "start"})
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert len(folded.reads) > first
    assert folded.positions["control/wish"] == "start"


async def test_a_wish_may_be_for_some_rows(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    folded.reads.clear()

    await wished(folded, guest, {"action": "start", "where": "id % 100 = 7 -- odd ones"})

    assert sorted(place[0] for _, place in folded.reads) == list(range(7, KEYS, 100))


async def test_a_condition_that_is_none_is_refused_before_it_is_written_down(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, said = Folded(), list[SourceReport]()
    source = source_of(guest, report=said.append)
    await until_equal(folded, guest)
    reading = asyncio.ensure_future(live(folded, source))
    await until(lambda: source._reading is not None)
    await source.control(Control("first", "snapshot", ORDERS_ID, {"action": "resume"}))
    await until(lambda: "control/first" in folded.positions)

    for condition in ("no_such_column > 1", "true) UNION SELECT 1; DROP TABLE orders; --("):
        control = Control("w", "snapshot", ORDERS_ID, {"action": "start", "where": condition})
        with pytest.raises(SourceRejected):
            await source.control(control)

    await until(lambda: folded.positions.get("control/w") == "refused")  # and so for good
    reading.cancel()
    await asyncio.wait([reading])
    assert progress_of(folded).is_done
    remark = next(each for each in reversed(said) if isinstance(each, Remark))
    assert remark.finding is not None and "condition cannot be used" in remark.finding.problem


async def test_a_reading_rests_over_restarts_until_it_is_to_go_on(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded, said = Folded(), list[Diagnostic]()

    def hear(report: SourceReport) -> None:
        if isinstance(report, Remark) and report.finding is not None:
            said.append(report.finding)

    await live(folded, source_of(guest), batches=5)

    await wished(folded, guest, {"action": "pause"}, id="pause")
    before = len(folded.reads)
    await until_equal(folded, guest)
    assert len(folded.reads) == before
    assert progress_of(folded).is_paused
    reading = asyncio.ensure_future(live(folded, source_of(guest, report=hear)))
    await until(lambda: bool(said))
    reading.cancel()
    await asyncio.wait([reading])
    assert said[0].problem == "the snapshot of public.orders is paused"
    assert said[0].hint == "headwater snapshot resume shop/public.orders"
    await wished(folded, guest, {"action": "resume"}, id="resume")

    assert not differing(folded, guest, "orders")


async def test_a_first_reading_rests_as_soon_as_that_is_wanted(guest: Guest) -> None:
    guest.execute(*ORDERS, *AUDIT)
    guest.publish()
    folded, source = Folded(), source_of(guest, snapshot={"parallel": 1})
    signal = Control("pause", "snapshot", ORDERS_ID, {"action": "pause"})

    async with asyncio.timeout(PATIENCE_S), aclosing(source.changes({})) as coming:
        async for batch in coming:
            folded.take(batch)
            if len(folded.reads) > 1_000 and not folded.positions.get("control/pause"):
                await source.control(signal)  # again and again is the same
            if "control/pause" in folded.positions and not differing(folded, guest, "audit"):
                break
    folded.killed()
    read = [place for table, place in folded.reads if table == "orders"]
    assert 0 < len(read) < KEYS and progress_of(folded).is_paused
    await wished(folded, guest, {"action": "resume"}, id="resume")

    assert not differing(folded, guest, "orders")
    read = [place for table, place in folded.reads if table == "orders"]
    assert len(read) == len(set(read)) == KEYS, "finished work is not read again"


async def test_a_table_without_a_key_rests_and_begins_anew(guest: Guest) -> None:
    guest.execute(*AUDIT, *ORDERS)
    guest.publish()
    folded = Folded()
    await live(folded, source_of(guest), batches=3)
    await wished(folded, guest, {"action": "pause"}, id="pause", table="audit")
    guest.execute("INSERT INTO audit SELECT i, 'meanwhile' FROM generate_series(1, 50) i")
    await until_equal(folded, guest)

    await wished(folded, guest, {"action": "resume"}, id="resume", table="audit")

    assert not differing(folded, guest, "audit")
    assert folded.truncates == 1


async def test_a_table_without_a_key_that_is_paused_and_resumed_while_it_is_tried_is_begun_again(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest.execute(*AUDIT)
    guest.publish()
    folded, source, tried = Folded(), source_of(guest), 0
    await until_equal(folded, guest)
    audit, try_every_row = TableId("public", "audit"), ChunkReader._try_every_row

    async def interrupted(reader: ChunkReader, *each: Any) -> None:
        nonlocal tried
        tried += 1
        await try_every_row(reader, *each)
        for action in ("pause", "resume") if tried == 1 else ():
            await source.control(Control(action, "snapshot", audit, {"action": action}))

    monkeypatch.setattr(ChunkReader, "_try_every_row", interrupted)
    reading = asyncio.ensure_future(live(folded, source))
    await until(lambda: source._reading is not None)
    await source.control(Control("start", "snapshot", audit, {"action": "start"}))
    await until(lambda: bool(folded.truncates) or tried > 3 or reading.done())
    reading.cancel()
    await asyncio.wait([reading])

    assert folded.truncates == 1 and tried == 2
    assert not differing(folded, guest, "audit")


async def test_a_reading_that_is_given_up_is_not_taken_up_again(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()
    await live(folded, source_of(guest), batches=5)

    await wished(folded, guest, {"action": "stop"})

    assert 0 < len(folded.reads) < KEYS
    assert progress_of(folded).is_done


@pytest.mark.parametrize(
    "accident",
    [
        "TRUNCATE orders",
        "VACUUM FULL orders",
        "ALTER TABLE orders ADD COLUMN more int DEFAULT 5",
        "ALTER TABLE orders ALTER amount TYPE bigint",
        "DROP TABLE orders",
    ],
)
async def test_a_table_stays_whole_whatever_happens_meanwhile(guest: Guest, accident: str) -> None:
    guest.execute(*ORDERS)
    guest.publish()
    folded = Folded()
    await live(folded, source_of(guest), batches=5)

    guest.execute(accident)
    if not accident.startswith("DROP"):
        guest.execute("UPDATE orders SET note = 'later' WHERE id % 10 = 0")
        await until_equal(folded, guest)
        assert values(folded.rows("orders")) == values(in_table(guest, "orders"))
    else:
        guest.execute("CREATE TABLE other (id int PRIMARY KEY)")
        await until_equal(folded, guest)


async def test_another_table_of_the_same_name_is_read(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish("orders")
    folded = Folded()
    await until_equal(folded, guest)

    guest.execute(
        "CREATE TABLE fresh (id int PRIMARY KEY, amount int, note text)",
        "INSERT INTO fresh SELECT i, -i, 'fresh' FROM generate_series(1, 300) i",
        "DROP TABLE orders",
        "ALTER TABLE fresh RENAME TO orders",
        "ALTER PUBLICATION headwater_shop ADD TABLE orders",
    )
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")


async def test_partitions_are_read_as_their_table(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, amount int, note text) PARTITION BY HASH (id)",
        *(
            f"CREATE TABLE orders_{n} PARTITION OF orders"
            f" FOR VALUES WITH (MODULUS 3, REMAINDER {n})"
            for n in range(3)
        ),
        *ORDERS[1:],
        *AUDIT,
    )
    guest.publish()
    folded, told = Folded(), Told()

    with writers(guest, seed=5):
        await live(folded, source_of(guest, report=told), batches=9)
        await live(folded, source_of(guest, report=told), batches=9)
    await until_equal(folded, guest, report=told)

    assert not differing(folded, guest, "orders")
    assert told.newest["orders"].is_done


async def wished(
    folded: Folded,
    guest: Guest,
    options: dict[str, str],
    *,
    id: str = "wish",
    table: str = "orders",
) -> None:
    """The source runs until what was wished is done, and nothing is left to be read."""
    source = source_of(guest)
    reading = asyncio.ensure_future(live(folded, source))
    await until(lambda: source._reading is not None)  # wishes wait there for the stream
    await source.control(Control(id, "snapshot", TableId("public", table), options))

    def is_done() -> bool:
        progress = progress_of(folded, table)
        return f"control/{id}" in folded.positions and (progress.is_done or progress.is_paused)

    try:
        await until(lambda: is_done() or reading.done())
        if reading.done():
            reading.result()
    finally:
        reading.cancel()
        await asyncio.wait([reading])
        folded.killed()


def looks_for_writers(guest: Guest) -> bool:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_locks l%' AND datname = "
    return int(guest.value(f"{asked} current_database() AND pid <> pg_backend_pid()")) > 0


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - several things make it so
        await asyncio.sleep(0.01)


def progress_of(folded: Folded, table: str = "orders") -> TableSnapshotProgress:
    return TableSnapshotProgress.parse(folded.positions[f"snapshot/public.{table}"])


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Without the names of what is null, as rows of an earlier form lack new columns."""
    return sorted((row["id"], row["amount"], row["note"]) for row in rows)
