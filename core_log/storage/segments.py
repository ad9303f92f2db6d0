"""The segments of one partition, oldest first: finds one by offset or time, and chooses those that
retention removes."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.records.batch_header import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch
from headwater.core_log.storage.files import FileRange, Files
from headwater.core_log.storage.index import NO_TIMESTAMP, AbortedTransaction
from headwater.core_log.storage.log_config import UNLIMITED, LogConfig
from headwater.core_log.storage.scan import OFFSETS_MAX, CheckedBatches
from headwater.core_log.storage.segment import (
    FOREVER,
    SNAPSHOT,
    SNAPSHOT_SPACING_BYTES,
    SUFFIXES,
    Segment,
    file_name,
)
from headwater.core_log.storage.swap import set_aside

DAMAGE_HINT = (
    "restore this file from a copy; headwater log verify DIRECTORY shows what is left,"
    " headwater log mend DIRECTORY lets everybody pass what is not"
)
OPEN_SEALED_MAX = 4
"""Number of sealed segments that keep their file and indexes open."""


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


class Segments:
    """A list of segments, never empty; the last one is active and the only one with appends."""

    def __init__(self, files: Files, directory: Path, segments: Iterable[Segment]) -> None:
        self._files, self.directory = files, directory
        self._segments = list(segments)
        self._recent: list[Segment] = []
        assert self._segments, "a partition has at least its active segment"
        self.active = self._segments[-1]
        self.may_skip = False
        """Whether compaction may have removed offsets."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> Sequence[Segment]:
        return self._segments[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Makes a new segment the active one."""
        self._use(self.active)
        self._segments.append(segment)
        self.active = segment

    def holding(self, offset: int) -> Segment:
        """Returns the segment that has `offset`, or would have it."""
        if offset >= self.active.base_offset:
            return self.active
        number = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        segment = self._segments[max(number - 1, 0)]
        self._use(segment)
        return segment

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Returns the segment of `offset` and all after it."""
        number = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        yield from self._segments[max(number - 1, 0) :]

    def after(self, segment: Segment) -> Segment | None:
        number = bisect_right(
            self._segments, segment.base_offset, key=lambda segment: segment.base_offset
        )
        return self._segments[number] if number < len(self._segments) else None

    def has_start(self, offset: int) -> bool:
        """Whether a segment begins there."""
        return self.holding(offset).base_offset == offset

    def read(
        self, offset: int, *, below: int, end_offset: int, bytes_max: int, at_least_one: bool
    ) -> FileRange | None:
        """Returns whole batches from the one with `offset` on, none beginning at or after
        `below`."""
        segment: Segment | None = self.holding(offset)
        while segment is not None and offset < below:
            following = None if segment is self.active else self.after(segment)
            limit_offset = end_offset if following is None else following.base_offset
            limit = segment.size
            if following is not None and not self.may_skip and segment.end_offset != limit_offset:
                raise CorruptLog(
                    "offsets are missing between two segments",
                    file=str(segment.path),
                    offset=segment.end_offset,
                    next_offset=limit_offset,
                )
            if below < limit_offset:
                limit, limit_offset = segment.position_of(below), below
            found = segment.read(
                offset,
                limit=limit,
                limit_offset=limit_offset,
                bytes_max=bytes_max,
                at_least_one=at_least_one,
            )
            if found is not None or segment.position_of(offset) < limit:
                return found
            # compaction has left nothing in the first segment from this offset on
            segment = following
        return None

    def heads(self, from_offset: int) -> Iterator[BatchHeader]:
        """Yields the headers of all batches from the one with `from_offset` on."""
        for segment in self.from_offset(from_offset):
            for _, header in segment.heads(segment.position_of(from_offset)):
                yield header

    def batches(self, from_offset: int) -> Iterator[memoryview]:
        """Yields the same batches whole; raises `CorruptLog` at the first whose checksum fails."""
        for segment in self.from_offset(from_offset):
            checked = CheckedBatches(
                segment.file,
                segment.position_of(from_offset),
                segment.size,
                next_offset=segment.base_offset,
                may_skip=True,
            )
            for _, _, batch in checked:
                yield batch
            if checked.damage is not None:
                position, offset, reason = checked.damage
                raise CorruptLog(
                    reason,
                    file=str(segment.path),
                    position=position,
                    offset=offset,
                    hint=DAMAGE_HINT,
                )

    def first_at_or_after(
        self, timestamp: int, *, start_offset: int, below: int
    ) -> TimedOffset | None:
        """Returns the first record, from the log's start on, that is not older than `timestamp`."""
        for segment in self.from_offset(start_offset):
            if segment.base_offset >= below:
                return None
            if segment.size == 0 or segment.max_timestamp < timestamp:
                continue
            found = _first_in(segment, timestamp, start_offset, below)
            if found is not None:
                return found
        return None

    def newest(self, *, start_offset: int, below: int) -> TimedOffset | None:
        """Returns the first of the records that have the largest timestamp between two offsets."""
        bounds = [
            (segment.newest_between(start_offset, below), segment)
            for segment in self.from_offset(start_offset)
            if segment.base_offset < below
        ]
        best: TimedOffset | None = None
        for timestamp, segment in sorted(bounds, key=lambda each: each[0], reverse=True):
            if timestamp == NO_TIMESTAMP or (best is not None and timestamp < best.timestamp):
                break
            if (
                best is not None
                and segment.base_offset > best.offset
                and timestamp == best.timestamp
            ):
                continue
            found = _first_in(segment, timestamp, start_offset, below)
            # a batch may keep the time of a record that was deleted
            found = found or _newest_in(segment, start_offset, below)
            best = _newer(best, found)
        return best

    def find_aborted(self, lo: int, hi: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that may have records in [lo, hi)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(lo):
            for aborted in segment.aborted.entries:
                if aborted.last_offset >= lo and aborted.first_offset < hi:
                    found.append(aborted)
                if aborted.last_stable_offset >= hi:
                    return found
        return found

    def find_expired(
        self, config: LogConfig, *, now_ms: int, start_offset: int, below: int
    ) -> Sequence[Segment]:
        """Returns the oldest segments to delete; all are completely below `below`, and none is the
        active one.

        In Kafka's order: segments past `retention.ms` by their newest record, then those in excess
        of `retention.bytes`. Below the log's start everything is deleted, whatever the policy.
        """
        excess = self.size - config.retention_bytes
        gone: list[Segment] = []
        for segment, following in pairwise(self):
            if following.base_offset > below:
                break
            is_old = _is_expired(segment, config, now_ms)
            excess -= segment.size
            is_excess = config.is_deleted and config.retention_bytes != UNLIMITED and excess >= 0
            if not (is_old or is_excess or following.base_offset <= start_offset):
                break
            gone.append(segment)
        return gone

    def is_worth_rolling(self, config: LogConfig, *, now_ms: int) -> bool:
        """Whether the active segment itself is past retention, or past the longest time until its
        compaction: it must be closed for either."""
        active = self.active
        if not active.size:
            return False
        is_overdue = (
            config.is_compacted
            and active.first_timestamp is not None
            and 0 <= active.first_timestamp < now_ms - config.max_compaction_lag_ms
        )
        return is_overdue or _is_expired(active, config, now_ms)

    def sync_files(self, *, from_offset: int) -> None:
        """Syncs every file of the segment of `from_offset` and of all after it."""
        for segment in self.from_offset(from_offset):
            for suffix in SUFFIXES:
                path = segment.path.with_suffix(suffix)
                if self._files.exists(path):
                    self._files.open(path).sync()

    def _use(self, segment: Segment) -> None:
        """Keeps few sealed segments open, so that a long partition needs few file descriptors."""
        if segment in self._recent:
            return
        self._recent.append(segment)
        if len(self._recent) > OPEN_SEALED_MAX:
            oldest = self._recent.pop(0)
            if oldest is not self.active:
                oldest.release()

    def replace(self, gone: Sequence[Segment], fresh: Sequence[Segment]) -> None:
        """Replaces the segments `gone` by `fresh`; the caller handles the files."""
        kept = [segment for segment in self._segments if segment not in gone]
        self._segments = sorted([*kept, *fresh], key=lambda segment: segment.base_offset)
        self._recent = [segment for segment in self._recent if segment not in gone]
        self.active = self._segments[-1]

    def drop(self, gone: Sequence[Segment]) -> list[Path]:
        """Removes segments and renames their files; returns the files to delete."""
        self.replace(gone, ())
        names = [
            file_name(segment.base_offset, suffix)
            for segment in gone
            for suffix in (*SUFFIXES, SNAPSHOT)
        ]
        return set_aside(self._files, self.directory, names)


def _is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    return (
        config.is_deleted
        and config.retention_ms != UNLIMITED
        and segment.newest_ms + config.retention_ms < now_ms
    )


BELOW_ALL_TIMES = -2
"""Below all times, so that the first batch of a segment, which sets its time, is checked."""


class Growth:
    """Three bounds, computed seldom, so that an ordinary append costs three comparisons."""

    __slots__ = ("_config", "offset_max", "size_max", "snapshot_size", "timestamp_max")

    def __init__(self, segment: Segment, config: LogConfig, *, snapshot_size: int) -> None:
        self._config, self.snapshot_size = config, snapshot_size
        self.plan(segment)

    def plan(self, segment: Segment) -> None:
        """Computes the bounds from the segment's present content."""
        config = self._config
        entries = max(segment.room_for_entries(config.segment_index_bytes), 0)
        self.size_max = min(
            config.segment_bytes,
            segment.size + entries * config.index_interval_bytes,
            self.snapshot_size + SNAPSHOT_SPACING_BYTES,
        )
        self.offset_max = segment.base_offset + OFFSETS_MAX - 1
        first = segment.first_timestamp
        if first is None:
            self.timestamp_max = BELOW_ALL_TIMES
        else:
            self.timestamp_max = first + config.roll_ms if first >= 0 else FOREVER

    def must_roll(self, segment: Segment, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether the next batch must begin a new segment. Time is that of the batches, as in
        Kafka; otherwise a load of old records would get a segment per batch."""
        config = self._config
        return segment.first_timestamp is not None and (
            segment.size + size > config.segment_bytes
            or segment.room_for_entries(config.segment_index_bytes) <= 0
            or max_timestamp > self.timestamp_max
            or last_offset > self.offset_max
        )


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
