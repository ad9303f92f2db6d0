"""Free space on this machine's disks of the log and of targets."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.connectors.source import FreeSpace
from headwater.pipelines.file.loader import LoadedPipeline


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
