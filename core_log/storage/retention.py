"""Which of a partition's oldest segments have had their time, or are one too many."""

from collections.abc import Sequence
from itertools import pairwise

from headwater.core_log.storage.log_config import UNLIMITED, LogConfig
from headwater.core_log.storage.segment import Segment
from headwater.core_log.storage.segments import Segments


def find_expired(
    segments: Segments, config: LogConfig, *, now_ms: int, start_offset: int, below: int
) -> Sequence[Segment]:
    """The oldest segments to delete, all of them wholly below `below`, never the active one.

    In Kafka's order: what is past `retention.ms` by its newest record, then what is in excess of
    `retention.bytes`. Below the log's start everything goes, whatever the policy.
    """
    excess = segments.size - config.retention_bytes
    gone: list[Segment] = []
    for segment, following in pairwise(segments):
        if following.base_offset > below:
            break
        is_old = (
            config.is_deleted
            and config.retention_ms != UNLIMITED
            and segment.newest_ms + config.retention_ms < now_ms
        )
        excess -= segment.size
        is_excess = config.is_deleted and config.retention_bytes != UNLIMITED and excess >= 0
        if not (is_old or is_excess or following.base_offset <= start_offset):
            break
        gone.append(segment)
    return gone


def is_worth_rolling(segments: Segments, config: LogConfig, *, now_ms: int) -> bool:
    """Whether the active segment itself is past retention, so that it must end to be deleted."""
    active = segments.active
    return (
        config.is_deleted
        and config.retention_ms != UNLIMITED
        and active.size > 0
        and active.newest_ms + config.retention_ms < now_ms
    )
