"""Whether a target can go on from where it stands, or the history it needs is gone."""

from collections.abc import Mapping

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import Bounds, Log, RetainedRange, TopicPartition
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

REBUILD = "headwater rebuild PIPELINE/TABLE --swap makes the table anew from what the log holds"


def lost_topics(
    stands: AppliedOffsets, bounds: Mapping[TopicPartition, Bounds], topic_ids: Mapping[str, str]
) -> dict[str, PositionLost]:
    """Topics of which going on would skip or resurrect anything, and why."""
    lost: dict[str, PositionLost] = {}
    for partition, stand in stands.items():
        try:
            check_same_log(partition, stand, bounds[partition], topic_ids[partition.topic])
            check_stand(partition, stand.next_offset, bounds[partition])
        except PositionLost as error:
            lost.setdefault(partition.topic, error)
    return lost


async def check_same_topics(log: Log, stands: AppliedOffsets) -> None:
    """What is read of another topic than was begun with is no part of the same history."""
    for topic, topic_id in {(each.topic, stand.topic_id) for each, stand in stands.items()}:
        if await log.topic_id(topic) != topic_id:
            raise PositionLost(
                "the topic was deleted and made anew while it was being read",
                hint=REBUILD,
                topic=topic,
            )


def check_reached(partition: TopicPartition, end: int, log: Bounds) -> None:
    """What is read up to an end that the log has not got is waited for in vain."""
    if end > log.end:
        raise PositionLost(
            "the log ends before what is to be read of it, so it has lost records or is another "
            "one",
            hint="restore the log, or rebuild the table from what it holds now",
            topic=partition.topic,
            partition=partition.partition,
            wanted=end,
            log_end=log.end,
        )


def check_stand(partition: TopicPartition, held: int, log: Bounds | RetainedRange) -> None:
    """A partition of which a target holds nothing yet has nothing to lose."""
    if held and held < log.start:
        raise PositionLost(
            "the log no longer holds what comes next for the target",
            hint=REBUILD,
            topic=partition.topic,
            partition=partition.partition,
            target=held,
            log_start=log.start,
        )
    if held and held < log.deletes_dropped_to:
        raise PositionLost(
            "deletes that the target has not seen have aged out of the log",
            hint=REBUILD,
            topic=partition.topic,
            partition=partition.partition,
            target=held,
            deletes_dropped_to=log.deletes_dropped_to,
        )


def check_same_log(
    partition: TopicPartition, stand: AppliedOffset, log: Bounds, topic_id: str
) -> None:
    if topic_id != stand.topic_id:
        raise PositionLost(
            "the target was filled from another topic of this name, which is gone",
            hint=REBUILD,
            topic=partition.topic,
            partition=partition.partition,
        )
    if stand.next_offset > log.end:
        raise PositionLost(
            "the target is ahead of the log, so the log has lost records or is another one",
            hint="restore the log, or rebuild the table from what it holds now",
            topic=partition.topic,
            partition=partition.partition,
            target=stand.next_offset,
            log_end=log.end,
        )
