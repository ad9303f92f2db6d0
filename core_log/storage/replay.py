"""Updates producer states from batches that are already in the log."""

from collections.abc import Iterator

from headwater.core_log.records.batch_header import CONTROL, BatchHeader
from headwater.core_log.records.record_codec import decode_batch, decode_marker
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.producer_snapshot import ProducerSnapshots
from headwater.core_log.storage.producers import ProducerStates
from headwater.core_log.storage.segment import FOREVER, Segment
from headwater.core_log.storage.segments import Segments


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
            rebuild_aborted(segment, segments, snapshots, certain_to)
        segment.aborted.truncate(certain_to)
        for aborted in replay_segment(
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
        for _ in replay_segment(
            producers, segment, from_offset=from_offset, below=end_offset, now_ms=0
        ):
            pass  # aborted transactions are in their index
    return producers


def mend_aborted(segments: Segments, snapshots: ProducerSnapshots, end_offset: int) -> None:
    """Rebuilds every index of aborted transactions that contradicts itself."""
    for segment in segments:
        if segment.aborted.is_damaged:
            rebuild_aborted(segment, segments, snapshots, end_offset)


def rebuild_aborted(
    segment: Segment, segments: Segments, snapshots: ProducerSnapshots, end_offset: int
) -> None:
    """Finds a segment's aborted transactions again, from the state of producers at its start."""
    taken = snapshots.before(segment.base_offset)
    from_offset, snapshot = taken or (segments.first.base_offset, [])
    producers = ProducerStates()
    producers.restore(snapshot)
    for each in segments.from_offset(from_offset):
        found = list(
            replay_segment(producers, each, from_offset=from_offset, below=end_offset, now_ms=0)
        )
        if each is segment:
            segment.aborted.replace(found)
            return


def replay_segment(
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
