"""Detects deletes that compaction removed from the log before a reader had reached them."""

from collections.abc import Mapping

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import Bounds, RetainedRange, TopicPartition
from headwater.sinks.sink import AppliedOffsets


def check_no_delete_was_missed(
    start: AppliedOffsets,
    *,
    before: Mapping[TopicPartition, Bounds | RetainedRange],
    after: Mapping[TopicPartition, Bounds | RetainedRange],
) -> None:
    """Raises PositionLost if a delete was missed.

    `start` is where the whole read began; `before` and `after` are the log start offsets when it
    began and when it ended.
    """
    for partition, retained in after.items():
        dropped_to = retained.deletes_dropped_to
        if dropped_to > max(before[partition].deletes_dropped_to, start[partition].next_offset):
            raise PositionLost(
                "the log removed deletes before they were read",
                hint="raise log.delete_retention, then rebuild the table",
                topic=partition.topic,
                partition=partition.partition,
                deletes_dropped_to=dropped_to,
            )
