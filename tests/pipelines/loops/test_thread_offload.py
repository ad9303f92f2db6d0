"""What is made ahead comes in order, fails in its place, and never outlives who asked for it."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from headwater.pipelines.loops.thread_offload import (
    THREAD_BYTES_MIN,
    one_ahead,
    run_in_thread,
    start_work,
)


class Items:
    def __init__(self, count: int, *, breaks: bool = False) -> None:
        self.count, self.breaks = count, breaks
        self.made = 0
        self.is_closed = False

    async def generate(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.made += 1
                yield number
            if self.breaks:
                raise ValueError("after the last")
        finally:
            self.is_closed = True


async def test_items_come_in_order_and_end() -> None:
    items = Items(5)

    assert [each async for each in one_ahead(items.generate())] == [0, 1, 2, 3, 4]
    assert items.is_closed


async def test_a_failure_comes_after_what_came_before_it() -> None:
    found = []

    with pytest.raises(ValueError, match="after the last"):
        async for each in one_ahead(Items(2, breaks=True).generate()):
            found.append(each)  # noqa: PERF401 - what was found before the failure counts

    assert found == [0, 1]


async def test_a_reader_that_stops_early_leaves_nothing_running() -> None:
    items = Items(100)

    async with aclosing(one_ahead(items.generate())) as ahead:
        async for _ in ahead:
            break

    assert items.is_closed
    assert items.made <= 2


async def test_a_failure_made_ahead_of_who_stopped_is_nobodys() -> None:
    """Else the loop would complain about it long after."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
    async with aclosing(one_ahead(Items(1, breaks=True).generate())) as ahead:
        async for _ in ahead:
            await asyncio.sleep(0.01)
            break

    assert not complaints


async def test_a_cancelled_caller_waits_for_its_thread() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    working = asyncio.ensure_future(run_in_thread(work, THREAD_BYTES_MIN))
    await asyncio.to_thread(begun.wait)
    working.cancel()
    await asyncio.sleep(0)
    is_waiting = not working.done()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert is_waiting
    assert ended.is_set()


async def test_a_failure_in_a_thread_is_raised_for_its_caller() -> None:
    def work() -> None:
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        await run_in_thread(work, THREAD_BYTES_MIN)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told so")
async def test_threads_that_compute_push_nobody_aside() -> None:
    policy = await run_in_thread(lambda: os.sched_getscheduler(0), THREAD_BYTES_MIN)

    assert (policy, os.sched_getscheduler(0)) == (os.SCHED_BATCH, os.SCHED_OTHER)


async def test_work_that_needs_no_thread_is_done_at_once_and_keeps_its_failure() -> None:
    small, large = start_work(lambda: 1, 0), start_work(lambda: 2, THREAD_BYTES_MIN)
    failed = start_work(lambda: 1 // 0, 0)

    assert small.done()
    assert not large.done()
    assert [await small, await large] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        await failed
