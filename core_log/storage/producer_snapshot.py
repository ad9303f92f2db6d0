"""Producer states as files in Kafka's format, and restored from one and the batches after it, so
that recovery need not read everything."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.batch_header import CONTROL, BatchHeader
from headwater.core_log.records.record_codec import decode_batch, decode_marker
from headwater.core_log.storage.files import Files, write_all
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.producers import (
    NO_OFFSET,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    Producer,
    ProducerStates,
    SequencedBatch,
)
from headwater.core_log.storage.segment import FOREVER, SNAPSHOT, Segment, file_name
from headwater.core_log.storage.segments import Segments

VERSION = 1
_HEAD = Struct(">hI")  # version, checksum of all that follows
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")

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
        return self._directory / file_name(offset, SNAPSHOT)


def restore_producers(
    producers: ProducerStates,
    segments: Segments,
    snapshots: ProducerSnapshots,
    end_offset: int,
    *,
    certain_to: int = FOREVER,
    now_ms: int = 0,
) -> None:
    """Restores from a snapshot and the batches after it. An older snapshot is used, so that retries
    of the last few batches are recognised.

    The aborted indexes are trusted below `certain_to`; entries above are found again. Producers are
    as old as `now_ms`, or as the newest that was known before.
    """
    certain_to = min(certain_to, end_offset)
    now_ms = max((each.timestamp_ms for _, each in producers), default=now_ms)
    taken = snapshots.before(certain_to, spare=1) or snapshots.before(certain_to)
    from_offset, snapshot = taken or (segments.first.base_offset, [])
    producers.restore(snapshot)
    for segment in segments.from_offset(from_offset):
        if segment.aborted.is_damaged:
            _rebuild_aborted(segment, segments, snapshots, certain_to)
        segment.aborted.truncate(certain_to)
        for aborted in _replay_segment(
            producers, segment, from_offset=from_offset, below=end_offset, now_ms=now_ms
        ):
            if aborted.last_offset >= certain_to:
                segment.aborted.add(aborted)
        markers = segment.aborted.flush()
        if markers is not None:
            markers.sync()


def read_producers(
    segments: Segments, snapshots: ProducerSnapshots, end_offset: int
) -> ProducerStates:
    """Reads the producers of the last 8 to 24 megabytes, with all batches that are remembered."""
    taken = snapshots.before(end_offset, spare=2)
    from_offset, snapshot = taken or (segments.first.base_offset, [])
    producers = ProducerStates()
    producers.restore(snapshot)
    for segment in segments.from_offset(from_offset):
        for _ in _replay_segment(
            producers, segment, from_offset=from_offset, below=end_offset, now_ms=0
        ):
            pass  # aborted transactions are in their index
    return producers


def mend_aborted(segments: Segments, snapshots: ProducerSnapshots, end_offset: int) -> None:
    """Rebuilds every index of aborted transactions that contradicts itself."""
    for segment in segments:
        if segment.aborted.is_damaged:
            _rebuild_aborted(segment, segments, snapshots, end_offset)


def _rebuild_aborted(
    segment: Segment, segments: Segments, snapshots: ProducerSnapshots, end_offset: int
) -> None:
    """Finds a segment's aborted transactions again, from the state of producers at its start."""
    taken = snapshots.before(segment.base_offset)
    from_offset, snapshot = taken or (segments.first.base_offset, [])
    producers = ProducerStates()
    producers.restore(snapshot)
    for each in segments.from_offset(from_offset):
        found = list(
            _replay_segment(producers, each, from_offset=from_offset, below=end_offset, now_ms=0)
        )
        if each is segment:
            segment.aborted.replace(found)
            return


def _replay_segment(
    producers: ProducerStates,
    segment: Segment,
    *,
    from_offset: int,
    below: int,
    now_ms: int,
) -> Iterator[AbortedTransaction]:
    """Updates the producers from the headers of batches between two offsets; returns the aborted
    transactions whose markers are there."""
    position = segment.position_of(from_offset) if from_offset > segment.base_offset else 0
    for at, header in segment.heads(position):
        if header.base_offset >= below:
            return
        if header.producer_id < 0:
            continue
        if header.attributes & CONTROL:
            yield from replay_marker(
                producers, header, segment.file.read(at, header.total_bytes), now_ms
            )
        else:
            producers.note(header, header.base_offset, now_ms)


def replay_marker(
    producers: ProducerStates, header: BatchHeader, batch: bytes | memoryview, now_ms: int
) -> Iterator[AbortedTransaction]:
    """Ends the transaction if the control batch is an end marker."""
    for record in decode_batch(batch)[1]:
        marker = decode_marker(record)
        if marker is None:
            continue
        aborted = producers.note_marker(
            header.producer_id,
            header.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            offset=header.base_offset,
            timestamp_ms=now_ms,
        )
        if aborted is not None:
            yield aborted
