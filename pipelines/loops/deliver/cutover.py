"""Where a sink continues in a table's next topic, after the end of the former one."""

from collections.abc import Collection, Mapping

from headwater.core_log.foundation.errors import BeingReadAgain, LogUnavailable
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.generations import Generations, TopicSwitch
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.sinks.sink import AppliedOffset, AppliedOffsets


class TopicCutovers:
    """The cut-overs of a sink that holds offsets of the former topic.

    A sink without such offsets reads the next topic from its start, with all rows that were filled
    in.
    """

    def __init__(self) -> None:
        self._into: dict[str, TopicSwitch] = {}

    def add(
        self,
        generations: Generations,
        offsets: dict[TopicPartition, int],
        *,
        at_work: Collection[str] = (),
    ) -> None:
        """Finds where the next topics begin, for `stands`. `at_work` are topics that the sink is
        about to apply, though it holds nothing of them yet."""
        topics = {*at_work, *(partition.topic for partition in offsets)}
        for switch in generations.switches:
            if switch.former in topics:
                topics.add(switch.topic)
                self._into[switch.topic] = switch
                for partition, end in switch.ends.items():
                    offsets.setdefault(TopicPartition(switch.topic, partition), end)

    def is_unfilled(self, topic: str) -> bool:
        """Returns whether the target's rows of the former topic are not part of this one."""
        switch = self._into.get(topic)
        return switch is not None and not switch.is_filled

    def waits(self, topic: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Returns whether the former topic must be read to its end first."""
        switch = self._into.get(topic)
        return switch is not None and not is_finished(switch, offsets)

    def find_unfinished(self, offsets: Mapping[TopicPartition, int]) -> list[TopicSwitch]:
        """Returns topics whose former topic must still be read."""
        return [each for each in self._into.values() if not is_finished(each, offsets)]


def is_finished(switch: TopicSwitch, offsets: Mapping[TopicPartition, int]) -> bool:
    return all(
        offsets.get(TopicPartition(switch.former, partition), 0) >= end
        for partition, end in switch.former_ends.items()
    )


def carry_offsets(
    generations: Generations, applied: AppliedOffsets, topic_ids: Mapping[str, str]
) -> AppliedOffsets:
    """Returns a target's offsets in those topics.

    A topic of which the target has nothing yet counts too, if it has all that the topic was filled
    from. `topic_ids` are of the given topics.
    """
    offsets = {partition: each.next_offset for partition, each in applied.items()}
    crossings = TopicCutovers()
    crossings.add(generations, offsets)
    begun = {partition.topic for partition in applied}
    for topic in topic_ids:
        if topic not in begun and crossings.is_unfilled(topic):
            raise BeingReadAgain(
                "the target table has the former key and is rebuilt for the present one",
                hint="let its sink continue, then repeat the command",
                topic=topic,
            )
    for switch in crossings.find_unfinished(offsets):
        if switch.topic in topic_ids:
            raise LogUnavailable(
                "the target has not finished the table's former topic",
                hint="let its sink catch up, then repeat the command",
                topic=switch.topic,
                former=switch.former,
            )
    return dict(applied) | {
        partition: AppliedOffset(topic_ids[partition.topic], offset)
        for partition, offset in offsets.items()
        if partition not in applied and partition.topic in topic_ids
    }


async def prehistory_ends(
    log: Log, pipeline: str, ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Returns per partition the offset where the oldest stored commit touched it; `ends` if none
    did.

    Below these offsets a slice may end anywhere, because the commit boundaries are gone.
    """
    first: dict[TopicPartition, int] = {}
    async for columns in read_decided(log, commits_home(pipeline)):
        for _, commit in decode_commits(columns, pipeline):
            for partition, offset_range in commit.touched.items():
                first.setdefault(partition, offset_range.first)
    return {partition: first.get(partition, end) for partition, end in ends.items()}
