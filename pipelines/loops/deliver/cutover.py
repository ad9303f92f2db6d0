"""Where a sink goes on in the next topic of a table, once it has come to the end of the last."""

from collections.abc import Collection, Mapping

from headwater.core_log.foundation.errors import BeingReadAgain, LogUnavailable
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.generations import Generations, TopicSwitch
from headwater.pipelines.journal.read_to_end import read_decided
from headwater.sinks.sink import AppliedOffset, AppliedOffsets


class TopicCutovers:
    """The switches that concern a sink, since it holds something of the topic before them.

    Who holds nothing of it reads the next topic from its start, with all that was filled in.
    """

    def __init__(self) -> None:
        self._into: dict[str, TopicSwitch] = {}

    def add(
        self,
        generations: Generations,
        stands: dict[TopicPartition, int],
        *,
        at_work: Collection[str] = (),
    ) -> None:
        """`stands` get to know where the next topics begin; `at_work` are topics that the sink is
        about to apply, although it holds nothing of them yet."""
        held = {*at_work, *(partition.topic for partition in stands)}
        for switch in generations.switches:
            if switch.former in held:
                held.add(switch.topic)
                self._into[switch.topic] = switch
                for partition, end in switch.ends.items():
                    stands.setdefault(TopicPartition(switch.topic, partition), end)

    def is_unfilled(self, topic: str) -> bool:
        """Whether what a target holds of the former topic is no part of this one."""
        switch = self._into.get(topic)
        return switch is not None and not switch.is_filled

    def waits(self, topic: str, stands: Mapping[TopicPartition, int]) -> bool:
        """Whether the topic before this one has to come to its end first."""
        switch = self._into.get(topic)
        return switch is not None and not is_finished(switch, stands)

    def find_unfinished(self, stands: Mapping[TopicPartition, int]) -> list[TopicSwitch]:
        """Those whose former topic has to be read still."""
        return [each for each in self._into.values() if not is_finished(each, stands)]


def is_finished(switch: TopicSwitch, stands: Mapping[TopicPartition, int]) -> bool:
    return all(
        stands.get(TopicPartition(switch.former, partition), 0) >= end
        for partition, end in switch.former_ends.items()
    )


def carry_offsets(
    generations: Generations, stands: AppliedOffsets, topic_ids: Mapping[str, str]
) -> AppliedOffsets:
    """Where a target stands in those topics, also where it has had nothing of a topic yet but all
    that the topic was filled from. `topic_ids` of the topics that are asked for."""
    offsets = {partition: stand.next_offset for partition, stand in stands.items()}
    crossings = TopicCutovers()
    crossings.add(generations, offsets)
    begun = {partition.topic for partition in stands}
    for topic in topic_ids:
        if topic not in begun and crossings.is_unfilled(topic):
            raise BeingReadAgain(
                "the target's table has the former key, and is made anew for the present one",
                hint="let its sink go on, and do it again",
                topic=topic,
            )
    for switch in crossings.find_unfinished(offsets):
        if switch.topic in topic_ids:
            raise LogUnavailable(
                "the target has not come to the end of the topic before the present one",
                hint="let its sink catch up, and do it again",
                topic=switch.topic,
                former=switch.former,
            )
    return dict(stands) | {
        partition: AppliedOffset(topic_ids[partition.topic], offset)
        for partition, offset in offsets.items()
        if partition not in stands and partition.topic in topic_ids
    }


async def prehistory_ends(
    log: Log, pipeline: str, ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Per partition where the first remembered commit touched it; `ends` where none did.

    Below these offsets a slice may end anywhere: nobody knows any more what belonged together.
    """
    first: dict[TopicPartition, int] = {}
    async for columns in read_decided(log, commits_home(pipeline)):
        for _, commit in decode_commits(columns, pipeline):
            for partition, stretch in commit.touched.items():
                first.setdefault(partition, stretch.first)
    return {partition: first.get(partition, end) for partition, end in ends.items()}
