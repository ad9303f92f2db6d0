"""Which bursts of the binary log a thread is woken for, and which are read where they arrive."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import rows_of, run_once, running

T = "CREATE TABLE t (id int PRIMARY KEY, v longtext)"


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Begins to note the work that threads get."""

    def begin() -> list[str]:
        noted, loop = list[str](), asyncio.get_running_loop()
        run = loop.run_in_executor

        def note(executor: Any, work: Callable[..., Any], *given: Any) -> Any:
            noted.append(str(work))
            return run(executor, work, *given)

        monkeypatch.setattr(loop, "run_in_executor", note)
        return noted

    return begin


async def test_small_transactions_wake_no_thread(
    mysql_guest: MysqlGuest, woken: Callable[[], list[str]]
) -> None:
    mysql_guest.execute(T)
    told = await run_once(mysql_guest)
    async with running(mysql_guest, told.positions) as story:
        mysql_guest.execute("INSERT INTO t VALUES (1, 'the form of the table is known from here')")
        await story.came(rows=1)

        noted = woken()
        for number in range(2, 22):
            mysql_guest.execute(f"INSERT INTO t VALUES ({number}, 'a')")
            await story.came(rows=number)

    assert noted == []
    assert story.letters("t") == "c" * 21


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (2, REPEAT('large', 100000))",
        "INSERT INTO t SELECT seq.n + 2, REPEAT('many', 300) FROM (SELECT 0 n UNION SELECT 1) a"
        " JOIN (WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 99)"
        " SELECT n FROM s) seq WHERE a.n = 0",
    ],
    ids=["a large row", "many rows"],
)
async def test_the_event_loop_is_not_held_by_much_work(
    mysql_guest: MysqlGuest, woken: Callable[[], list[str]], statement: str
) -> None:
    mysql_guest.execute(T)
    told = await run_once(mysql_guest)
    async with running(mysql_guest, told.positions) as story:
        mysql_guest.execute("INSERT INTO t VALUES (1, 'a')")
        await story.came(rows=1)

        noted = woken()
        mysql_guest.execute(statement)
        await story.came(rows=rows_of(mysql_guest, "t"))

    assert noted != []


async def test_the_event_loop_is_not_held_by_a_prepared_transaction(
    mysql_guest: MysqlGuest, woken: Callable[[], list[str]]
) -> None:
    mysql_guest.execute(T)
    told = await run_once(mysql_guest)
    name = f"'{mysql_guest.database}'"
    async with running(mysql_guest, told.positions) as story:
        mysql_guest.execute(
            f"XA START {name}",
            "INSERT INTO t VALUES (2, REPEAT('held', 10000))",
            f"XA END {name}",
            f"XA PREPARE {name}",
        )
        mysql_guest.execute("INSERT INTO t VALUES (1, 'logged behind the prepared rows')")
        await story.came(rows=1)

        noted = woken()
        mysql_guest.execute(f"XA COMMIT {name}")
        await story.came(rows=2)

    assert noted != []
