"""Passes signals to the source while it runs."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from headwater.connectors.source import CONTROL, Control, FreeSpace
from headwater.core_log.client.gather import let_go, wait_for_end
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import Positions
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

logger = logging.getLogger(__name__)

POLL_S = 0.1


class SignalRelay(Protocol):
    """The part of a source that accepts signals."""

    async def control(self, control: Control) -> None: ...


Controls = Callable[[], Sequence[Control]]
"""All present signals for a source."""


@asynccontextmanager
async def relay_signals(
    source: SignalRelay, controls: Controls, done: Positions
) -> AsyncIterator[None]:
    """Passes each signal once; those that the position marks as done are not repeated."""
    task = asyncio.ensure_future(_relay(source, controls, done))
    try:
        yield
    finally:
        task.cancel()
        await wait_for_end(task)


async def _relay(source: SignalRelay, controls: Controls, done: Positions) -> None:
    known = {part.removeprefix(CONTROL) for part in done if part.startswith(CONTROL)}
    while True:
        for control in controls():
            if control.id not in known:
                known.add(control.id)
                await _tell(source, control)
        await asyncio.sleep(POLL_S)


async def _tell(source: SignalRelay, control: Control) -> None:
    """Passes a signal; a signal that cannot be fulfilled does not stop the source."""
    try:
        await source.control(control)
    except HeadwaterError as error:
        target = control.table or "every table"
        logger.warning("the source rejects the signal %s of %s: %s", control.kind, target, error)
    except Exception:
        logger.exception("a signal could not be passed to the source")


POLL_S = 0.1


async def nothing() -> None:
    """Watches nothing."""


async def unless_paused(
    read: Callable[[], Awaitable[None]],
    *,
    pipeline: str,
    task: str,
    desired: Callable[[], DesiredTaskState],
    report: Reporter,
    watch: Callable[[], Awaitable[None]] = nothing,
) -> None:
    """Runs `read` from the start whenever nothing is paused; returns or fails with it.

    A pause cancels it: connections are closed, uncommitted changes are read again, and the position
    may be changed meanwhile. `watch` runs while it is paused; the task fails with it.
    """
    paused = StateChanged(pipeline, task, "", TaskState.PAUSED)
    if desired().is_paused:
        report(paused)
    while True:
        await _while_paused(desired, watch)
        reading = asyncio.ensure_future(read())
        try:
            while not reading.done() and not desired().is_paused:
                await asyncio.wait({reading}, timeout=POLL_S)
        finally:
            was_done = reading.done()
            reading.cancel()
            await wait_for_end(reading)
        if was_done or not reading.cancelled():
            return reading.result()
        report(paused)


async def _while_paused(
    desired: Callable[[], DesiredTaskState], watch: Callable[[], Awaitable[None]]
) -> None:
    if not desired().is_paused:
        return
    watching = asyncio.ensure_future(watch())
    try:
        while desired().is_paused:
            if watching.done():
                watching.result()
            await asyncio.sleep(POLL_S)
    finally:
        await let_go(watching)


def free_space(loaded: LoadedPipeline) -> Sequence[FreeSpace]:
    """Returns free bytes by disk, with the data kept on it."""
    users: dict[int, list[str]] = {}
    places: dict[int, Path] = {}
    for user, path in _places(loaded):
        there = next(each for each in (path, *path.parents) if each.exists())
        device = there.stat().st_dev
        users.setdefault(device, []).append(user)
        places[device] = there
    return [FreeSpace(users[each], shutil.disk_usage(places[each]).free) for each in users]


def _places(loaded: LoadedPipeline) -> Iterator[tuple[str, Path]]:
    if loaded.spec.log.type == "embedded":
        yield "the log", loaded.log_path
    for part in loaded.sinks:
        if local := getattr(part.settings, "local_path", ""):
            yield part.name, (loaded.directory / Path(local).expanduser()).absolute()
