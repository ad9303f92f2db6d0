"""Looks that overlap share one open log, which is closed with the last of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.pipelines.console.console_route import SharedLog


class Opened:
    def __init__(self, *, fails: bool = False) -> None:
        self.opened = self.closed = 0
        self._fails = fails

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.opened += 1
        await asyncio.sleep(0)
        if self._fails:
            raise LogUnavailable("nobody is there")
        yield self
        await asyncio.sleep(0)
        self.closed += 1


async def test_looks_that_overlap_share_the_log() -> None:
    log = Opened()
    shared = SharedLog(log.open)

    async def look() -> object:
        async with shared.open() as found:
            await asyncio.sleep(0.01)
            return found

    assert set(await asyncio.gather(*(look() for _ in range(5)))) == {log}
    assert (log.opened, log.closed) == (1, 1)
    await look()
    assert (log.opened, log.closed) == (2, 2)


async def test_a_look_that_is_cancelled_closes_the_log() -> None:
    log = Opened()
    shared, is_inside = SharedLog(log.open), asyncio.Event()

    async def look() -> None:
        async with shared.open():
            is_inside.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(look())
    await is_inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (log.opened, log.closed) == (1, 1)


async def test_a_log_that_cannot_be_opened_is_tried_by_the_next_look() -> None:
    log = Opened(fails=True)
    shared = SharedLog(log.open)

    for _ in range(2):
        with pytest.raises(LogUnavailable):
            async with shared.open():
                raise AssertionError("it is not open")
    assert (log.opened, log.closed) == (2, 0)
