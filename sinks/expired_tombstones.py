"""Whether deletes went out of the log while somebody read it who had not come to them yet."""

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
    """Raises PositionLost. `start` is where the reading of everything began, `before` and `after`
    how far the partitions reached when it began and when it was done."""
    for partition, kept in after.items():
        dropped_to = kept.deletes_dropped_to
        if dropped_to > max(before[partition].deletes_dropped_to, start[partition].next_offset):
            raise PositionLost(
                "deletes aged out of the log while they were being read",
                hint="raise log.delete_retention, then rebuild the table",
                topic=partition.topic,
                partition=partition.partition,
                deletes_dropped_to=dropped_to,
            )
