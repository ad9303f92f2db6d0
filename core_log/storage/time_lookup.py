"""Finds an offset by time: the time index leads to a batch, whose records give the exact offset."""

from typing import NamedTuple

from headwater.core_log.records.batch_header import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch
from headwater.core_log.storage.index import NO_TIMESTAMP
from headwater.core_log.storage.segment import Segment
from headwater.core_log.storage.segments import Segments


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(
    segments: Segments, timestamp: int, *, start_offset: int, below: int
) -> TimedOffset | None:
    """Returns the first record, from the log's start on, that is not older than `timestamp`."""
    for segment in segments.from_offset(start_offset):
        if segment.base_offset >= below:
            return None
        if segment.size == 0 or segment.max_timestamp < timestamp:
            continue
        found = _first_in(segment, timestamp, start_offset, below)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, timestamp: int, start_offset: int, below: int
) -> TimedOffset | None:
    begin = max(segment.search_from(timestamp), start_offset)
    for position, header in segment.heads(segment.position_of(begin)):
        if header.base_offset >= below:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        first = _first_time(header)
        if first >= timestamp and header.base_offset >= start_offset:
            return TimedOffset(header.base_offset, first, header.leader_epoch)
        for record in _records(segment, position, header):
            if record.timestamp_ms >= timestamp and start_offset <= record.offset < below:
                return TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def newest(segments: Segments, *, start_offset: int, below: int) -> TimedOffset | None:
    """Returns the first of the records that have the largest timestamp between two offsets."""
    bounds = [
        (segment.newest_between(start_offset, below), segment)
        for segment in segments.from_offset(start_offset)
        if segment.base_offset < below
    ]
    best: TimedOffset | None = None
    for timestamp, segment in sorted(bounds, key=lambda each: each[0], reverse=True):
        if timestamp == NO_TIMESTAMP or (best is not None and timestamp < best.timestamp):
            break
        if best is not None and segment.base_offset > best.offset and timestamp == best.timestamp:
            continue
        found = _first_in(segment, timestamp, start_offset, below)
        # a batch may keep the time of a record that was deleted
        found = found or _newest_in(segment, start_offset, below)
        best = _newer(best, found)
    return best


def _newest_in(segment: Segment, start_offset: int, below: int) -> TimedOffset | None:
    found = [
        (position, header)
        for position, header in segment.heads(segment.position_of(start_offset))
        if header.base_offset < below and header.record_count
    ]
    best: TimedOffset | None = None
    for position, header in sorted(found, key=lambda each: each[1].max_timestamp, reverse=True):
        if best is not None and header.max_timestamp < best.timestamp:
            break
        for record in _records(segment, position, header):
            if start_offset <= record.offset < below and record.timestamp_ms != NO_TIMESTAMP:
                each = TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
                best = _newer(best, each)
    return best


def _newer(one: TimedOffset | None, other: TimedOffset | None) -> TimedOffset | None:
    """Returns the one with the larger time; of equal ones the earlier."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda each: (each.timestamp, -each.offset))


def _first_time(header: BatchHeader) -> int:
    """Returns the time of the record at the base offset if the header alone has it; else -1."""
    if header.record_count != header.last_offset_delta + 1:  # compaction may have removed it
        return NO_TIMESTAMP
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return NO_TIMESTAMP if header.attributes & DELETE_HORIZON else header.base_timestamp


def _records(segment: Segment, position: int, header: BatchHeader) -> list[PlainRecord]:
    return decode_batch(segment.file.read(position, header.total_bytes))[1]
