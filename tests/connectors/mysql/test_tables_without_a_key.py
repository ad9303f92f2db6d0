"""A table without a key is read as a whole at one position, and its changes follow."""

import asyncio
from collections import Counter
from threading import Event

from headwater.core_log.model.changes import Operation, Phase
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running

T = "CREATE TABLE t (id int, v varchar(20))"


def rows_in(told: MysqlStory) -> Counter[tuple[int, str]]:
    """The table as the log has it: a delete takes one of the rows that are equal."""
    rows: Counter[tuple[int, str]] = Counter()
    for batch in told.batches:
        for changes in (each for each in batch.tables if each.schema.table.name == "t"):
            befores = (
                [None] * len(changes) if changes.before is None else changes.before.to_pylist()
            )
            for operation, row, before in zip(
                changes.operations.to_pylist(), changes.rows.to_pylist(), befores, strict=True
            ):
                if operation == Operation.TRUNCATE:
                    rows.clear()
                elif operation == Operation.DELETE:
                    rows -= Counter([tuple(row.values())])
                elif operation == Operation.UPDATE:
                    assert before is not None
                    rows -= Counter([tuple(before.values())])
                    rows[tuple(row.values())] += 1
                else:
                    rows[tuple(row.values())] += 1
    return rows


def rows_at(guest: MysqlGuest) -> Counter[tuple[int, str]]:
    return Counter(guest.execute("SELECT id, v FROM t"))


async def test_equal_rows_are_read_and_streamed_each_for_itself(mysql_guest: MysqlGuest) -> None:
    mysql_guest.execute(T, "INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    told = await run_once(mysql_guest)
    mysql_guest.execute("INSERT INTO t VALUES (1, 'a')", "DELETE FROM t LIMIT 1")
    mysql_guest.execute("UPDATE t SET v = 'b' WHERE id = 2")
    await run_once(mysql_guest, told)

    assert told.letters("t") == "trrrcdu"
    assert {each.schema.key for batch in told.batches for each in batch.tables} == {()}
    assert rows_in(told) == rows_at(mysql_guest)


async def test_a_table_that_changes_while_it_is_read_ends_equal(mysql_guest: MysqlGuest) -> None:
    mysql_guest.execute(T, "CREATE TABLE other (id int PRIMARY KEY, n int)")
    mysql_guest.execute("INSERT INTO other VALUES (1, 0)")
    for first in range(0, 20_000, 1_000):
        some = ", ".join(f"({at}, 'v{at % 9}')" for at in range(first, first + 1_000))
        mysql_guest.execute(f"INSERT INTO t VALUES {some}")
    stopped = Event()

    def write() -> None:
        at = 0
        connection = mysql_guest.server.connect(mysql_guest.database)
        with connection, connection.cursor() as cursor:
            while not stopped.is_set():
                at += 1
                cursor.execute(f"INSERT INTO t VALUES ({at}, 'new'), ({at}, 'new')")
                cursor.execute(f"DELETE FROM t WHERE v = 'new' AND id < {at - 20}")
                cursor.execute("UPDATE other SET n = n + 1")

    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        async with running(mysql_guest) as told:
            await told.came(rows=21_000)
    finally:
        stopped.set()
        await writing
    places = [at for at, batch in enumerate(told.batches) if batch.positions]
    kept = MysqlStory()
    for batch in told.batches[: places[-1] + 1]:
        kept.take(batch)
    await run_once(mysql_guest, kept)

    assert rows_in(kept) == rows_at(mysql_guest)
    assert kept.fold("other") and rows_of_other(kept) == mysql_guest.execute("SELECT * FROM other")


def rows_of_other(told: MysqlStory) -> list[tuple[int, int]]:
    return [(row["id"], row["n"]) for row in told.fold("other").values()]


async def test_rows_of_a_table_have_one_position_behind_the_last(mysql_guest: MysqlGuest) -> None:
    mysql_guest.execute(T, "INSERT INTO t VALUES (1, 'a')", "CREATE TABLE u (id int)")
    told = await run_once(mysql_guest)

    with_rows = [batch for batch in told.batches if batch.tables]
    assert not any(batch.positions for batch in with_rows)
    assert told.letters("t") == "tr" and told.letters("u") == "t"


async def test_ddl_leads_to_a_truncate_and_all_rows_again(mysql_guest: MysqlGuest) -> None:
    mysql_guest.execute(T, "INSERT INTO t VALUES (1, 'a'), (1, 'a')")
    told = await run_once(mysql_guest)
    mysql_guest.execute(
        "ALTER TABLE t ADD COLUMN n int DEFAULT 7", "INSERT INTO t VALUES (2, 'b', 8)"
    )
    await run_once(mysql_guest, told)

    phases = [each.phase for batch in told.batches for each in batch.replacements]
    assert phases == [Phase.PENDING, Phase.STARTED, Phase.COMPLETE]
    assert rows_in(told) == Counter(mysql_guest.execute("SELECT * FROM t"))


async def test_a_table_that_loses_its_key_is_left_out_until_it_has_one(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(20))")
    mysql_guest.execute("INSERT INTO t VALUES (1, 'a')")
    told = await run_once(mysql_guest)
    mysql_guest.execute("ALTER TABLE t DROP PRIMARY KEY", "INSERT INTO t VALUES (1, 'b')")
    await run_once(mysql_guest, told)
    await run_once(mysql_guest, told)  # a restart does not take it for one that never had a key
    assert told.letters("t") == "r"

    mysql_guest.execute("DELETE FROM t WHERE v = 'b'", "ALTER TABLE t ADD PRIMARY KEY (id)")
    await run_once(mysql_guest, told)

    assert told.letters("t") == "rr"
