"""A stop waits for what is in flight, but not for ever."""

import asyncio
from contextlib import suppress

import pytest

from headwater.pipelines.loops.deliver.group_offsets import shield


class Slice:
    """Work that goes on when it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_done, self.was_given_up, self._failure = False, False, failure

    async def apply(self) -> None:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.was_given_up = True
            raise
        if self._failure is not None:
            raise self._failure
        self.is_done = True


async def test_a_stop_takes_effect_when_the_slice_in_flight_is_done() -> None:
    part = Slice()
    task = asyncio.ensure_future(shield(part.apply()))
    await part.begun.wait()

    task.cancel()
    await asyncio.sleep(0)
    was_waiting = not task.done()
    part.may_end.set()
    with suppress(asyncio.CancelledError):
        await task

    assert was_waiting and part.is_done and task.cancelled()


async def test_a_second_stop_does_not_leave_the_slice_in_flight_behind() -> None:
    """A rebuild stops the delivery before its swap, and the run may be stopped meanwhile."""
    part = Slice()
    task = asyncio.ensure_future(shield(part.apply()))
    await part.begun.wait()

    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    was_waiting = not task.done()
    part.may_end.set()
    with suppress(asyncio.CancelledError):
        await task

    assert was_waiting and part.is_done and task.cancelled()


async def test_work_that_does_not_end_is_given_up() -> None:
    part = Slice()
    task = asyncio.ensure_future(shield(part.apply(), wait_s_max=0))
    await part.begun.wait()

    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert part.was_given_up and task.cancelled()


async def test_a_failure_during_a_stop_is_nobodys_business_any_more() -> None:
    part = Slice(failure=OSError("disk full"))
    task = asyncio.ensure_future(shield(part.apply()))
    await part.begun.wait()

    task.cancel()
    await asyncio.sleep(0)
    part.may_end.set()
    with suppress(asyncio.CancelledError):
        await task

    assert task.cancelled()


async def test_a_failure_without_a_stop_is_raised() -> None:
    part = Slice(failure=OSError("disk full"))
    part.may_end.set()

    with pytest.raises(OSError, match="disk full"):
        await shield(part.apply())
