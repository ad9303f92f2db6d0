"""Chooses the part of a compacted partition to clean, and whether cleaning pays, by Kafka's
rules."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.core_log.storage.log_config import LogConfig

OFFSETS_PER_SEGMENT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts about a closed segment that the choice needs."""

    base_offset: int
    size: int
    newest_ms: int
    """The largest timestamp of its records."""
    oldest_ms: int
    """The timestamp of its first batch; negative if there is none."""
    index_size: int = 0
    time_index_size: int = 0


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Closed segments from the log's start to the first one that must not be changed."""

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    """Everything below was cleaned before: no key occurs twice there."""
    end_offset: int
    """Start of the first segment that is not cleaned."""
    is_overdue: bool
    """`max.compaction.lag.ms` has passed for some of it."""

    @property
    def clean_bytes(self) -> int:
        return sum(s.size for s in self.segments if s.base_offset < self.first_dirty_offset)

    @property
    def dirty_bytes(self) -> int:
        return sum(s.size for s in self.segments if s.base_offset >= self.first_dirty_offset)

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable(
    closed: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    active_offset: int,
    first_dirty_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable | None:
    """Returns the part that may be cleaned now; None if all of it is clean, unstable or too young.

    `stable_offset` is the end of the synced and decided part. A first dirty offset outside of the
    log, after its start moved or its end was truncated, is corrected.
    """
    if not closed:
        return None
    first_dirty = min(max(first_dirty_offset, closed[0].base_offset), active_offset)
    ends = [*(segment.base_offset for segment in closed[1:]), active_offset]
    end_offset, taken = closed[0].base_offset, 0
    overdue_before = now_ms - max(config.max_compaction_lag_ms, 0)
    is_overdue = False
    for segment, end in zip(closed, ends, strict=True):
        is_dirty = end > first_dirty
        is_young = segment.newest_ms > now_ms - config.min_compaction_lag_ms
        if end > stable_offset or (is_dirty and config.min_compaction_lag_ms > 0 and is_young):
            break
        is_overdue = is_overdue or (is_dirty and 0 <= segment.oldest_ms < overdue_before)
        end_offset, taken = end, taken + 1
    if end_offset <= first_dirty:
        return None
    return Cleanable(tuple(closed[:taken]), first_dirty, end_offset, is_overdue)


def group_segments(
    segments: Iterable[SegmentFacts], *, end_offset: int, segment_bytes: int, index_bytes: int
) -> list[list[SegmentFacts]]:
    """Groups neighbours whose cleaned records surely fit into one segment and its indexes."""
    rest = list(segments)
    ends = [*(segment.base_offset for segment in rest[1:]), end_offset]
    groups: list[list[SegmentFacts]] = []
    size = index_size = time_index_size = 0
    for segment, end in zip(rest, ends, strict=True):
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
        fits = (
            bool(groups)
            and size <= segment_bytes
            and max(index_size, time_index_size) <= index_bytes
            and end - 1 - groups[-1][0].base_offset <= OFFSETS_PER_SEGMENT_MAX
        )
        if fits:
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size, index_size = segment.size, segment.index_size
        time_index_size = segment.time_index_size
    return groups
