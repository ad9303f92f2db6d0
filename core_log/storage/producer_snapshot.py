"""Producer states as a file in Kafka's format, so that recovery need not read everything."""

from collections.abc import Iterable
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.files import Files, write_all
from headwater.core_log.storage.producers import (
    NO_OFFSET,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    Producer,
    ProducerStates,
    SequencedBatch,
)
from headwater.core_log.storage.segment import file_name

SUFFIX = ".snapshot"
VERSION = 1

_HEAD = Struct(">hI")  # version, checksum of all that follows
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")

SPACING_BYTES = 8 << 20
"""A recovery reads the headers of about twice this many bytes."""
ProducerSnapshot = list[tuple[int, Producer]]


def encode_snapshot(producers: Iterable[tuple[int, Producer]]) -> bytes:
    entries = []
    for producer_id, producer in producers:
        if producer.batches:
            newest = producer.batches[-1]
            last = (newest.last_sequence, newest.last_offset)
            delta = newest.last_offset - newest.base_offset
        else:
            last, delta = (NO_SEQUENCE, NO_OFFSET), 0
        entries.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                *last,
                delta,
                producer.timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_from,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, Producer]]:
    """Returns each producer with its last batch; earlier ones are not in the file."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise DecodeError("producer snapshot is too short", size=len(data))
    version, checksum = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION or crc32c(body) != checksum:
        raise DecodeError("producer snapshot is damaged or of another version", version=version)
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if count < 0 or len(rows) != count * _ENTRY.size:
        raise DecodeError("producer snapshot does not hold what it counts", count=count)
    return [_producer(*row) for row in _ENTRY.iter_unpack(rows)]


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    transaction_from: int,
) -> tuple[int, Producer]:
    producer = Producer(
        epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_from=transaction_from,
        timestamp_ms=timestamp_ms,
    )
    if last_sequence >= 0:
        first = (last_sequence - delta) & SEQUENCE_MASK
        batch = SequencedBatch(first, last_sequence, last_offset - delta, last_offset, timestamp_ms)
        producer.batches.append(batch)
        producer.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        producer.unbroken_from = first
    return producer_id, producer


class ProducerSnapshots:
    """Snapshot files, each named by its offset. They are unsynced: a damaged one is ignored."""

    def __init__(self, files: Files, directory: Path, offsets: list[int]) -> None:
        self._files, self._directory = files, directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        """Returns the offsets of all snapshots, oldest first."""
        return list(self._offsets)

    def take(self, producers: ProducerStates, offset: int) -> None:
        file = self._files.open(self._path(offset), create=True)
        content = encode_snapshot(producers)
        file.truncate(0)
        write_all(file, 0, content)
        if offset not in self._offsets:
            self._offsets.append(offset)

    def at(self, offset: int) -> ProducerSnapshot | None:
        """Returns the snapshot at exactly that offset, if it exists and is valid."""
        try:
            return decode_snapshot(self._files.read(self._path(offset)))
        except (FileNotFoundError, DecodeError):
            return None

    def before(self, offset: int, *, spare: int = 0) -> tuple[int, ProducerSnapshot] | None:
        """Returns the newest valid one at or before `offset`, without the `spare` newest."""
        for taken_at in reversed(self._offsets):
            if taken_at <= offset:
                snapshot = self.at(taken_at)
                if snapshot is not None and spare == 0:
                    return taken_at, snapshot
                spare -= snapshot is not None
        return None

    def drop_after(self, offset: int) -> None:
        """Removes later snapshots: their batches no longer exist."""
        self._remove([each for each in self._offsets if each > offset])

    def prune(self, *, bases: set[int], synced: int) -> None:
        """Keeps those at segment starts, the two newest on disk, and all newer ones."""
        between = [each for each in self._offsets if each not in bases and each <= synced]
        self._remove(between[:-2])

    def forget_before(self, offset: int) -> None:
        self._remove([each for each in self._offsets if each < offset])

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._files.remove(self._path(offset))
            self._offsets.remove(offset)

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SUFFIX)
