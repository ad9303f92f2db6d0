"""Stops a source while its pipeline is paused, and starts it again on resume."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from headwater.connectors.source import FreeSpace
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

POLL_S = 0.1


async def unless_paused(
    read: Callable[[], Awaitable[None]],
    *,
    pipeline: str,
    task: str,
    desired: Callable[[], DesiredTaskState],
    report: Reporter,
) -> None:
    """Runs `read` from the start whenever nothing is paused; returns or fails with it.

    A pause cancels it: connections are closed, uncommitted changes are read again, and the position
    may be changed meanwhile.
    """
    paused = StateChanged(pipeline, task, "", TaskState.PAUSED)
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
