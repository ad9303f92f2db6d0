"""A caller that is cancelled twice waits as long as one that is cancelled once."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from headwater.core_log.client.gather import in_thread, let_go, together, wait_for_end


class Slow:
    """Work whose clean-up ends when it is told to."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_over = False

    async def work(self) -> None:
        self.has_begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await self.may_end.wait()
            self.is_over = True


async def in_let_go(slow: Slow) -> None:
    task = asyncio.ensure_future(slow.work())
    await slow.has_begun.wait()
    await let_go(task)


async def in_together(slow: Slow) -> None:
    async def fail() -> None:
        await slow.has_begun.wait()
        raise OSError("broken")

    await together([slow.work(), fail()])


@pytest.mark.parametrize("wait", [in_let_go, in_together])
async def test_work_is_over_when_a_caller_that_is_cancelled_twice_ends(
    wait: Callable[[Slow], Coroutine[Any, Any, None]],
) -> None:
    slow = Slow()
    waiting = asyncio.ensure_future(wait(slow))
    await slow.has_begun.wait()

    for _ in range(3):
        await asyncio.sleep(0.01)
        waiting.cancel()
    await asyncio.sleep(0.01)
    was_waiting = not waiting.done()
    slow.may_end.set()
    with suppress(asyncio.CancelledError):
        await waiting

    assert was_waiting and slow.is_over and waiting.cancelled()


async def test_a_thread_is_over_when_a_caller_that_is_cancelled_twice_ends() -> None:
    may_end = Event()
    waiting = asyncio.ensure_future(in_thread(may_end.wait))

    for _ in range(2):
        await asyncio.sleep(0.01)
        waiting.cancel()
    await asyncio.sleep(0.01)
    was_waiting = not waiting.done()
    may_end.set()
    with suppress(asyncio.CancelledError):
        await waiting

    assert was_waiting and waiting.cancelled()


async def test_a_wait_ends_with_its_time() -> None:
    never = asyncio.get_running_loop().create_future()

    await wait_for_end(never, for_s_max=0.01)

    assert not never.done()
