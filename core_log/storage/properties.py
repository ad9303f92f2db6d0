"""Small files that identify a data directory and a partition, and note how they were left."""

import base64
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from uuid import UUID

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.files import File, Files, write_all

META = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_STOP = ".kafka_cleanshutdown"
LOSS = "loss"
LOG_DIRECTORY = "log"


def read_properties(files: Files, path: Path) -> dict[str, str]:
    """Reads Java's properties, as far as Kafka uses them; raises `FileNotFoundError`."""
    lines = files.read(path).decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_properties(files: Files, path: Path, values: Mapping[str, str]) -> None:
    files.replace(path, "".join(f"{key}={value}\n" for key, value in values.items()).encode())


def new_uuid(random: Random) -> UUID:
    """Returns an id whose text begins with no dash, as Kafka's: tools take it as an option's
    value."""
    made = UUID(int=random.getrandbits(128), version=4)
    return UUID(int=made.int ^ 1 << 127) if encode_uuid(made).startswith("-") else made


def encode_uuid(value: UUID) -> str:
    """Returns the id in Kafka's format: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise DecodeError("the text is not an id in Kafka's format", text=text) from error


def partition_named(name: str) -> TopicPartition | None:
    """Returns the partition whose directory has this name: `orders-0` is partition 0 of orders."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdecimal() else None


def partitions_set_aside(names: Iterable[str], endings: tuple[str, ...]) -> set[TopicPartition]:
    """Returns the partitions whose directories were renamed away, as far as their names tell."""
    stems = (name.rpartition(".")[0] for name in names if name.endswith(endings))
    return {found for stem in stems if (found := partition_named(stem))}


def read_topic_id(files: Files, directory: Path) -> UUID | None:
    """Returns the topic id of this partition's directory; None if it has none, for example after a
    power cut before the first sync."""
    try:
        lines = files.read(directory / PARTITION_METADATA).decode(errors="replace").splitlines()
        pairs = dict(line.partition(": ")[::2] for line in lines)
        return decode_uuid(pairs["topic_id"]) if pairs.get("version") == "0" else None
    except (FileNotFoundError, KeyError, DecodeError):
        return None


def write_topic_id(files: Files, directory: Path, topic_id: UUID) -> File:
    """Writes the id, unsynced; returns the file, to be synced with the partition's first
    batches."""
    content = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()
    file = files.open(directory / PARTITION_METADATA, create=True)
    write_all(file, 0, content)
    file.truncate(len(content))
    return file


def write_clean_stop(files: Files, directory: Path, *, broker_epoch: int) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace(directory / CLEAN_STOP, content.encode())


def take_clean_stop(files: Files, directory: Path) -> int | None:
    """Returns the broker epoch of the last stop if it was clean, -1 if the mark names none, and
    removes the mark, on disk on return."""
    path = directory / CLEAN_STOP
    if not files.exists(path):
        return None
    epoch = -1
    with suppress(ValueError, KeyError, TypeError):
        epoch = int(json.loads(files.read(path))["brokerEpoch"])
    files.remove(path)
    files.sync_directory(directory)
    return epoch


class Loss(Enum):
    """How much of a partition is missing, as far as its files tell. The note stays until the
    cluster knows it."""

    DOUBTFUL = "doubtful"
    """Its end was cut although whole batches followed, or nothing tells where it ended: it may lack
    records that were on disk."""
    CERTAIN = "certain"
    """Records that were on disk are missing."""


def note_loss(files: Files, directory: Path, loss: Loss) -> None:
    """Writes the loss into the partition's directory, on disk on return; a certain one stays."""
    if read_loss(files, directory) is not Loss.CERTAIN:
        files.replace(directory / LOSS, loss.value.encode())


def read_loss(files: Files, directory: Path) -> Loss | None:
    path = directory / LOSS
    if not files.exists(path):
        return None
    is_doubtful = files.read(path) == Loss.DOUBTFUL.value.encode()
    return Loss.DOUBTFUL if is_doubtful else Loss.CERTAIN


def forget_loss(files: Files, directory: Path) -> None:
    """Removes the note, on disk on return."""
    files.remove(directory / LOSS)
    files.sync_directory(directory)
