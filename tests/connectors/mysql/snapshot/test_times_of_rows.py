"""Rows that are read have a time among the times of commits: histories are ordered by it."""

import asyncio
from collections import defaultdict

import pytest

from headwater.connectors.mysql import follower
from headwater.connectors.snapshot.time_window import RateLimit
from headwater.core_log.model.changes import ChangeBatch, Phase
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import LETTERS, MysqlStory, running
from tests.fakes import FastClock

T = "CREATE TABLE t (id int PRIMARY KEY, n int)"
ROWS = "INSERT INTO t (id, n) VALUES (1, 0), (2, 0), (3, 0)"


def times_of(story: MysqlStory) -> dict[int, list[tuple[str, int]]]:
    """The letter and the time of each key's changes, in the order of the log."""
    found = defaultdict(list)
    for batch in story.batches:
        for changes in batch.tables:
            letters = [LETTERS[each] for each in changes.operations.to_pylist()]
            ids, times = changes.rows.column("id").to_pylist(), changes.committed_us.to_pylist()
            for letter, id, at_us in zip(letters, ids, times, strict=True):
                found[id].append((letter, at_us))
    return found


def check_never_back(story: MysqlStory) -> None:
    for each in times_of(story).values():
        assert each == sorted(each, key=lambda change: change[1])


@pytest.mark.parametrize("locking", ["none", "minimal"])
async def test_a_row_that_is_read_has_the_time_of_the_server(
    mysql_guest: MysqlGuest, locking: str
) -> None:
    root = MysqlGuest(mysql_guest.server, mysql_guest.database, "root:")
    mysql_guest.execute(T, ROWS)
    async with running(root, clock=FastClock(), snapshot={"locking": locking}) as story:
        await story.came(rows=3)
        mysql_guest.execute("UPDATE t SET n = n + 1")
        await story.came(rows=6)
        mysql_guest.execute("ALTER TABLE t ADD COLUMN m int")
        await story.came(rows=9)
        mysql_guest.execute("UPDATE t SET n = n + 1")
        await story.came(rows=12)

    assert story.letters() == "rrruuurrruuu"
    check_never_back(story)
    [deletes_us] = [
        each.source["ts_us"]
        for batch in story.batches
        for each in batch.replacements
        if each.phase is Phase.COMPLETE
    ]
    assert deletes_us == times_of(story)[1][2][1]


async def test_rows_that_wait_for_a_stream_behind_have_the_time_at_which_they_were_read(
    mysql_guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that were committed before the rows are emitted may follow them."""
    mysql_guest.execute(T, ROWS)
    is_read, passing = asyncio.Event(), RateLimit.passing

    async def passed(limit: RateLimit, rows: int) -> None:
        await passing(limit, rows)
        is_read.set()

    async def fall_behind(batch: ChangeBatch) -> None:
        if len(story.batches) == 1:
            await is_read.wait()
            mysql_guest.execute(*(f"UPDATE t SET n = 1 WHERE id = {id}" for id in (1, 2, 3)))
            mysql_guest.execute("INSERT INTO t VALUES (9, 0)", "SELECT sleep(0.01)")

    monkeypatch.setattr(RateLimit, "passing", passed)
    for name in ("QUICK_BYTES_MAX", "EVENTS_BYTES_MAX"):
        monkeypatch.setattr(follower, name, 1)
    async with running(mysql_guest, hold=fall_behind) as story:
        await story.came_last("t", 9)

    assert [letter for letter, _ in times_of(story)[3]] == ["r", "u"]
    check_never_back(story)


async def test_a_table_without_a_key_that_is_read_has_the_time_of_the_server(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute("CREATE TABLE t (id int, n int)", ROWS)
    async with running(mysql_guest, clock=FastClock()) as story:
        await story.came(rows=4)
        mysql_guest.execute("UPDATE t SET n = n + 1")
        await story.came(rows=7)

    assert story.letters() == "trrruuu"
    check_never_back(story)
