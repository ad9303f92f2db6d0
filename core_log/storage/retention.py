"""Chooses the oldest segments of a partition that retention removes."""

from collections.abc import Sequence
from itertools import pairwise

from headwater.core_log.storage.log_config import UNLIMITED, LogConfig
from headwater.core_log.storage.producer_snapshot import SPACING_BYTES
from headwater.core_log.storage.scan import OFFSETS_MAX
from headwater.core_log.storage.segment import FOREVER, Segment
from headwater.core_log.storage.segments import Segments


def find_expired(
    segments: Segments, config: LogConfig, *, now_ms: int, start_offset: int, below: int
) -> Sequence[Segment]:
    """Returns the oldest segments to delete; all are completely below `below`, and none is the
    active one.

    In Kafka's order: segments past `retention.ms` by their newest record, then those in excess of
    `retention.bytes`. Below the log's start everything is deleted, whatever the policy.
    """
    excess = segments.size - config.retention_bytes
    gone: list[Segment] = []
    for segment, following in pairwise(segments):
        if following.base_offset > below:
            break
        is_old = _is_expired(segment, config, now_ms)
        excess -= segment.size
        is_excess = config.is_deleted and config.retention_bytes != UNLIMITED and excess >= 0
        if not (is_old or is_excess or following.base_offset <= start_offset):
            break
        gone.append(segment)
    return gone


def is_worth_rolling(segments: Segments, config: LogConfig, *, now_ms: int) -> bool:
    """Whether the active segment itself is past retention, or past the longest time until its
    compaction: it must be closed for either."""
    active = segments.active
    if not active.size:
        return False
    is_overdue = (
        config.is_compacted
        and active.first_timestamp is not None
        and 0 <= active.first_timestamp < now_ms - config.max_compaction_lag_ms
    )
    return is_overdue or _is_expired(active, config, now_ms)


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
            self.snapshot_size + SPACING_BYTES,
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
