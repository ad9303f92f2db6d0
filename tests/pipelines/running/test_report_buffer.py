"""A busy worker says the same in fewer words, and nothing of it is lost or comes out of order."""

import asyncio

from headwater.pipelines.reports import OffsetsApplied, RowsMoved, StateChanged, TaskState
from headwater.pipelines.running.worker import GATHER_S, ReportBuffer
from headwater.pipelines.running.worker_protocol import Word


def moved(rows: int, *, table: str = "orders", committed_ms: int = 1) -> RowsMoved:
    return RowsMoved("shop", "source", table, rows, 10 * rows, committed_ms, committed_ms + 1)


def stood(**positions: str) -> OffsetsApplied:
    return OffsetsApplied("shop", "source", positions)


RUNNING = StateChanged("shop", "source", "", TaskState.RUNNING)


async def test_the_first_after_quiet_goes_at_once() -> None:
    said: list[Word] = []
    say = ReportBuffer(said.append, asyncio.get_running_loop())

    say(moved(1))

    assert said == [moved(1)]


async def test_rows_moved_are_added_up_and_positions_are_joined() -> None:
    said: list[Word] = []
    say = ReportBuffer(said.append, asyncio.get_running_loop())
    say(moved(1))

    say(moved(2, committed_ms=2))
    say(stood(stream="0/1", server="a"))
    say(moved(4, table="lines"))
    say(moved(3, committed_ms=3))
    say(stood(stream="0/2"))
    while len(said) < 4:  # noqa: ASYNC110 - its own timer says it
        await asyncio.sleep(GATHER_S)

    expected = [moved(5, committed_ms=3), moved(4, table="lines"), stood(stream="0/2", server="a")]
    assert said[1:] == expected


async def test_a_change_of_state_goes_at_once_behind_earlier_reports() -> None:
    said: list[Word] = []
    say = ReportBuffer(said.append, asyncio.get_running_loop())
    say(moved(1))

    say(moved(2))
    say(RUNNING)

    assert said == [moved(1), moved(2), RUNNING]


async def test_tasks_may_report_from_threads() -> None:
    said: list[Word] = []
    say = ReportBuffer(said.append, asyncio.get_running_loop())

    await asyncio.gather(*(asyncio.to_thread(say, moved(1)) for _ in range(50)))
    say.flush()

    assert sum(word.rows for word in said if isinstance(word, RowsMoved)) == 50


async def test_the_first_report_after_quiet_goes_at_once() -> None:
    said: list[Word] = []
    say = ReportBuffer(said.append, asyncio.get_running_loop())
    say(moved(1))
    while say.is_busy:  # noqa: ASYNC110 - its own timer ends it
        await asyncio.sleep(GATHER_S)

    say(moved(2))

    assert said == [moved(1), moved(2)]
