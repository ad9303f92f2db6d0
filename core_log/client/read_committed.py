"""What of a fetched stretch of the log a reader may see: whole batches, decided and not aborted."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader

NOTHING = memoryview(b"")
MAGIC_AT = 16


class AbortedRange(NamedTuple):
    """A transaction that was aborted: its batches begin at `first_offset`."""

    first_offset: int
    producer_id: int


class CommittedRecords(NamedTuple):
    data: memoryview
    next_offset: int


def is_readable(data: memoryview) -> bool:
    """Whether a batch of format 2 can begin here, as far as it came; nothing can be seen behind
    what is none."""
    if len(data) >= HEADER_BYTES:
        return BatchHeader.read(data).is_plausible
    return len(data) <= MAGIC_AT or data[MAGIC_AT] == 2


def whole_batches(data: memoryview, offset: int) -> CommittedRecords:
    """Cuts the torn batch that a broker may send last; `offset` is where reading began."""
    position, next_offset = 0, offset
    while position + HEADER_BYTES <= len(data):
        header = BatchHeader.read(data, position)
        if not header.is_plausible or position + header.total_bytes > len(data):
            break
        position += header.total_bytes
        next_offset = header.next_offset
    return CommittedRecords(data[:position], max(next_offset, offset))


def committed_batches(
    data: memoryview, offset: int, aborted: Iterable[AbortedRange]
) -> CommittedRecords:
    """Leaves out markers, and batches of the transactions that the broker says were aborted.

    A producer is in an aborted transaction from that transaction's first offset to the marker
    which ends it, so one pass in offset order decides every batch.
    """
    spans = sorted(aborted, reverse=True)
    aborting: set[int] = set()
    kept: list[memoryview] = []
    start = position = 0  # the run of visible batches that is being extended
    next_offset = offset
    while position + HEADER_BYTES <= len(data):
        header = BatchHeader.read(data, position)
        end = position + header.total_bytes
        if not header.is_plausible or end > len(data):
            break
        while spans and spans[-1].first_offset <= header.last_offset:
            aborting.add(spans.pop().producer_id)
        if header.is_control or (header.is_transactional and header.producer_id in aborting):
            if header.is_control:
                aborting.discard(header.producer_id)
            kept.append(data[start:position])
            start = end
        position, next_offset = end, header.next_offset
    kept.append(data[start:position])
    return CommittedRecords(_concat([part for part in kept if part]), max(next_offset, offset))


def _concat(parts: list[memoryview]) -> memoryview:
    if len(parts) <= 1:
        return parts[0] if parts else NOTHING
    return memoryview(b"".join(parts))
