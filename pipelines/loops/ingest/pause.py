"""Stops a source while its pipeline is paused, and starts it again on resume."""

import asyncio
from collections.abc import Awaitable, Callable

from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

POLL_S = 0.1


async def unless_paused(
    read: Callable[[], Awaitable[None]],
    *,
    pipeline: str,
    unit: str,
    desired: Callable[[], DesiredTaskState],
    report: Reporter,
) -> None:
    """Runs `read` from the start whenever nothing is paused; returns or fails with it.

    A pause cancels it: connections are closed, uncommitted changes are read again, and the position
    may be changed meanwhile.
    """
    paused = StateChanged(pipeline, unit, "", TaskState.PAUSED)
    if desired().is_paused:
        report(paused)
    while True:
        while desired().is_paused:  # noqa: ASYNC110 - what is wanted is told to whoever asks
            await asyncio.sleep(POLL_S)
        reading = asyncio.ensure_future(read())
        try:
            while not reading.done() and not desired().is_paused:
                await asyncio.wait({reading}, timeout=POLL_S)
        finally:
            was_done = reading.done()
            reading.cancel()
            await asyncio.wait({reading})
        if was_done or not reading.cancelled():
            return reading.result()
        report(paused)
