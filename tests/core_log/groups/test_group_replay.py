"""A restart changes nothing: the log folds to what the coordinator knew, in whatever order."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.groups.group_coordinator import OffsetCommitter
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.model.log import ProducerStamp, TopicPartition
from tests.core_log.groups.controlled_log import Groups

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
GROUPS = ["g", "h"]
PRODUCERS = [7, 8]
HISTORIES = max(40, settings().max_examples // 3)
Step = tuple[Any, ...]

commits = st.tuples(
    st.just("commit"),
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
    st.sampled_from([None, *PRODUCERS]),
)
ends = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans())
deletions = st.tuples(
    st.sampled_from(["delete offset", "delete group", "delete topic"]),
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
)


async def play(groups: Groups, step: Step, offset: int) -> None:
    coordinator = groups.coordinator
    match step:
        case ("commit", group, partition, producer_id):
            await coordinator.commit_offsets(
                group,
                {partition: CommittedOffset(offset)},
                by=OffsetCommitter(),
                producer=None if producer_id is None else ProducerStamp(producer_id, 0),
            )
        case ("end", producer_id, commit):
            groups.end_transaction(producer_id, 0, commit=commit)
        case ("delete offset", group, partition):
            await coordinator.delete_offsets(group, [partition])
        case ("delete group", group, _):
            await coordinator.delete_group(group)
        case ("delete topic", _, partition):
            coordinator.on_partitions_deleted([partition])


def known(groups: Groups) -> dict[str, object]:
    return {
        group: (
            groups.coordinator.offsets_of(group),
            [groups.coordinator.is_unstable(group, each) for each in PARTITIONS],
        )
        for group in GROUPS
    }


@settings(max_examples=HISTORIES)
@given(st.lists(st.one_of(commits, commits, ends, deletions), max_size=30), st.randoms())
def test_a_restart_changes_nothing(steps: list[Step], random: Random) -> None:
    async def history() -> None:
        groups = Groups()
        running: list[asyncio.Task[None]] = []
        for offset, step in enumerate(steps):
            if random.random() < 0.5:  # some commits are on their way while others begin
                groups.log.hold()
            running.append(asyncio.ensure_future(play(groups, step, offset)))
            await asyncio.sleep(0)
            if random.random() < 0.5:
                groups.log.release()
        groups.log.release()
        await asyncio.gather(*running)
        await groups.coordinator.commit_offsets("last", {}, by=OffsetCommitter())
        await groups.coordinator.commit_offsets(
            "last", {PARTITIONS[0]: CommittedOffset(0)}, by=OffsetCommitter()
        )
        before = known(groups)

        groups.restart()

        assert known(groups) == before

    asyncio.run(history())
