"""Remembers that a partition may lack what its replica promised, until the cluster knows it."""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.files import Files

FILE_NAME = "loss"


class Loss(Enum):
    """How much of a partition is missing, as far as its files tell."""

    DOUBTFUL = "doubtful"
    """Its end was cut although whole batches followed, or nothing tells where it ended: it may lack
    records that were on disk."""
    CERTAIN = "certain"
    """Records that were on disk are missing."""


def note_loss(files: Files, directory: Path, loss: Loss) -> None:
    """Writes the loss into the partition's directory, on disk on return; a certain one stays."""
    if read_loss(files, directory) is not Loss.CERTAIN:
        files.replace(directory / FILE_NAME, loss.value.encode())


def read_loss(files: Files, directory: Path) -> Loss | None:
    path = directory / FILE_NAME
    if not files.exists(path):
        return None
    is_doubtful = files.read(path) == Loss.DOUBTFUL.value.encode()
    return Loss.DOUBTFUL if is_doubtful else Loss.CERTAIN


def forget_loss(files: Files, directory: Path) -> None:
    """Removes the note, on disk on return."""
    files.remove(directory / FILE_NAME)
    files.sync_directory(directory)


def partitions_set_aside(names: Iterable[str], endings: tuple[str, ...]) -> set[TopicPartition]:
    """Returns the partitions whose directories were renamed away, as far as their names tell."""
    found = set()
    for name in names:
        if name.endswith(endings):
            topic, _, number = name.rpartition(".")[0].rpartition("-")
            if topic and number.isdecimal():
                found.add(TopicPartition(topic, int(number)))
    return found
