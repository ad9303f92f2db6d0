"""Checks whether a target can continue from its offsets in the log."""

from collections.abc import Mapping

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import Bounds, Log, RetainedRange, TopicPartition
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

REBUILD = "headwater rebuild PIPELINE/TABLE --swap rebuilds the table from the records of the log"
RESTORE = f"restore the log, or {REBUILD}"


async def epoch_ends(log: Log, offsets: AppliedOffsets) -> Mapping[TopicPartition, int]:
    """Returns where the leader epochs of a target's offsets end in this log, if they are known."""
    epochs = {part: at.leader_epoch for part, at in offsets.items() if at.leader_epoch >= 0}
    return await log.epoch_ends(epochs) if epochs else {}


def lost_topics(
    offsets: AppliedOffsets,
    bounds: Mapping[TopicPartition, Bounds],
    topic_ids: Mapping[str, str],
    ends: Mapping[TopicPartition, int],
) -> dict[str, PositionLost]:
    """Returns topics with the reason why continuing would skip changes or bring rows back."""
    lost: dict[str, PositionLost] = {}
    for partition, applied in offsets.items():
        try:
            check_same_log(partition, applied, bounds[partition], topic_ids[partition.topic])
            check_same_history(partition, applied, ends)
            check_offset(partition, applied.next_offset, bounds[partition])
        except PositionLost as error:
            lost.setdefault(partition.topic, error)
    return lost


async def check_same_topics(log: Log, offsets: AppliedOffsets) -> None:
    """Checks the topic's id: another topic of the same name has another history."""
    found = {(each.topic, applied.topic_id) for each, applied in offsets.items()}
    for topic, topic_id in sorted(found):
        if await log.topic_id(topic) != topic_id:
            raise PositionLost(
                "the topic was deleted and recreated while it was read",
                hint=REBUILD,
                topic=topic,
            )


def check_reached(partition: TopicPartition, end: int, log: Bounds) -> None:
    """Checks that the log reaches `end`; otherwise a reader would wait forever."""
    if end > log.end:
        raise _lost(
            partition,
            "the log ends before the offset to read: it has lost records or is another log",
            hint=RESTORE,
            wanted=end,
            log_end=log.end,
        )


def check_offset(partition: TopicPartition, offset: int, log: Bounds | RetainedRange) -> None:
    """Checks the offset of a partition; a partition without rows in the target has nothing to
    lose."""
    if offset and offset < log.start:
        raise _lost(
            partition,
            "the log no longer has the next records of the target",
            target=offset,
            log_start=log.start,
        )
    if offset and offset < log.deletes_dropped_to:
        raise _lost(
            partition,
            "the log has removed deletes that the target has not applied",
            target=offset,
            deletes_dropped_to=log.deletes_dropped_to,
        )


def check_same_log(
    partition: TopicPartition, applied: AppliedOffset, log: Bounds, topic_id: str
) -> None:
    if topic_id != applied.topic_id:
        raise _lost(partition, "the target was filled from a deleted topic of the same name")
    if applied.next_offset > log.end:
        raise _lost(
            partition,
            "the target is ahead of the log: the log has lost records or is another log",
            hint=RESTORE,
            target=applied.next_offset,
            log_end=log.end,
        )


def check_same_history(
    partition: TopicPartition, applied: AppliedOffset, ends: Mapping[TopicPartition, int]
) -> None:
    """Checks that the log had these records in the target's leader epoch. A log that was restored
    from an older copy has others at these offsets, once it has grown past them."""
    end = ends.get(partition)
    if end is not None and applied.next_offset > end:
        raise _lost(
            partition,
            "the target is of a later state of the log: the log was restored from an older copy",
            hint=RESTORE,
            target=applied.next_offset,
            same_until=max(end, 0),
        )


def _lost(
    partition: TopicPartition, problem: str, *, hint: str = REBUILD, **facts: int
) -> PositionLost:
    topic, number = partition
    return PositionLost(problem, hint=hint, topic=topic, partition=number, **facts)
