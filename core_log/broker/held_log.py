"""The files of a whole log as of one moment, held by links while the log goes on."""

from pathlib import Path
from typing import NamedTuple

from headwater.core_log.broker.broker import Broker
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.storage.checkpoints import (
    CLEANED_TO,
    DELETES_DROPPED_TO,
    FIRST_DIRTY,
    LOG_STARTS,
)
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.properties import LOG_DIRECTORY, META
from headwater.core_log.storage.segment import LOG

HOLD = "backup"
"""The directory of the links, in the data directory."""
CHECKPOINTS = (LOG_STARTS, CLEANED_TO, DELETES_DROPPED_TO, FIRST_DIRTY)
"""Without the recovery points: an opening then checks every batch."""
SMALL = ("partition.metadata", "leader-epoch-checkpoint", ".checkpoint")


class HeldFile(NamedTuple):
    """One file of the log. Its content is given if it is small and changes in place."""

    name: str
    """Its path in a data directory; that of the link is below `HOLD`."""
    size: int
    """Later bytes of a linked file do not belong to it."""
    content: bytes | None = None


def hold(broker: Broker) -> list[HeldFile]:
    """Links the segments of all partitions up to their high watermarks, without a break.

    Together the files are the log that a power cut at this moment would leave. Links of an earlier
    call are removed; only one copy is made at a time. Raises `LogUnavailable` if a partition cannot
    be used, because the copy would lack it.
    """
    files, data = broker.store.files, broker.settings.data
    if broker.unserved:
        names = ", ".join(f"{topic}-{index}" for topic, index in broker.unserved)
        raise LogUnavailable(
            "partitions of the log are offline, and a backup would lack them",
            hint="headwater status shows the reason",
            partitions=names,
        )
    release(files, data)
    held = [HeldFile(META, 0, files.read(data / META))]
    for name in CHECKPOINTS:
        path = broker.store.log_directory / name
        if files.exists(path):
            held.append(HeldFile(f"{LOG_DIRECTORY}/{name}", 0, files.read(path)))
    for partition in broker.partitions:
        held += _hold_partition(files, data, partition.log, below=partition.high_watermark)
    return held


def _hold_partition(files: Files, data: Path, log: PartitionLog, *, below: int) -> list[HeldFile]:
    directory = f"{LOG_DIRECTORY}/{log.directory.name}"
    held = [
        HeldFile(f"{directory}/{name}", 0, files.read(log.directory / name))
        for name in sorted(files.names(log.directory))
        if name.endswith(SMALL)
    ]
    segments = list(log.segments)
    files.make_directory(data / HOLD / directory)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        is_whole = following is not None and following.base_offset <= below
        size = segment.size if is_whole else segment.position_of(below)
        name = f"{directory}/{segment.path.name}"
        files.link(segment.path, data / HOLD / name)
        held.append(HeldFile(name, size))
        if not is_whole:
            break
    return held


def release(files: Files, data: Path) -> None:
    """Removes the links; a file that the log has removed meanwhile takes no more space."""
    for directory in _directories(files, data / HOLD):
        for name in files.names(directory):
            if name.endswith(LOG):
                files.remove(directory / name)
        files.remove_directory(directory)


def _directories(files: Files, top: Path) -> list[Path]:
    """The directories of the links, each after those that it holds."""
    if not files.exists(top):
        return []
    above = top / LOG_DIRECTORY
    below = [above / name for name in files.names(above)] if files.exists(above) else []
    return [*below, *([above] if files.exists(above) else []), top]
