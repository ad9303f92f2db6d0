"""Followers join the in-sync set once they have caught up, and leave it when they lag."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    InSyncBroker,
)
from headwater.core_log.replication.leader import Leader
from tests.core_log.broker.in_memory import ask, create, started
from tests.core_log.broker.replicated import TOPIC, Replicated
from tests.core_log.broker.test_replica_fetcher import until
from tests.fakes import MemoryFiles

LAG_MS_MAX = 30_000


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    cluster = Replicated()
    await cluster.create()
    yield cluster
    await cluster.close()


async def fall_behind(cluster: Replicated, node_id: int) -> None:
    """Takes the node out of the in-sync set, and lets it miss a record."""
    cluster.nodes[node_id].links.cut(1)
    cluster.elect(tuple(each for each in cluster.nodes if each != node_id))
    await cluster.tell(*cluster.nodes)
    await cluster.nodes[1].produce("missed")


async def test_a_follower_that_has_caught_up_joins(cluster: Replicated) -> None:
    await fall_behind(cluster, 3)

    cluster.nodes[3].links.mend()
    await until(lambda: cluster.state.in_sync == (1, 2, 3))

    leader = cluster.nodes[1].partition.leader
    assert isinstance(leader, Leader)
    await until(lambda: leader.in_sync == {1, 2, 3} and leader.pending is None)
    third = cluster.nodes[3]
    assert third.partition.log.durable_offset == 1
    [named] = cluster.asked[-1].topics[0].partitions
    epochs = {each.broker_id: each.broker_epoch for each in named.new_isr_with_epochs}
    assert epochs == {each: node.broker.broker_epoch for each, node in cluster.nodes.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("requests", "answers"), [(2, 0), (0, 2), (1, 1)])
async def test_a_proposal_is_repeated_until_the_metadata_tells_its_outcome(
    cluster: Replicated, requests: int, answers: int
) -> None:
    await fall_behind(cluster, 3)
    cluster.loses_requests, cluster.loses_answers, cluster.is_told = requests, answers, False

    cluster.nodes[3].links.mend()
    await until(lambda: len(cluster.asked) > requests + answers)
    leader = cluster.nodes[1].partition.leader
    assert isinstance(leader, Leader)
    await until(lambda: cluster.state.in_sync == (1, 2, 3))
    assert leader.pending is not None, "an answer alone tells no outcome"
    await cluster.tell(1)
    sent = len(cluster.asked)

    assert leader.in_sync == {1, 2, 3} and leader.pending is None
    await cluster.nodes[1].produce("later")
    assert len(cluster.asked) == sent


async def test_a_follower_that_lags_is_left_out_and_acks_of_all_go_on(cluster: Replicated) -> None:
    leader = cluster.nodes[1]
    await leader.produce("everywhere")
    cluster.nodes[3].links.cut(1)
    await leader.produce("not on the third", acks=1)

    cluster.clock.advance(LAG_MS_MAX - 1)
    leader.broker.proposals.look(cluster.clock.monotonic_ms())
    assert cluster.state.in_sync == (1, 2, 3)
    await leader.produce("keeps the second in sync", acks=1)
    await until(lambda: cluster.nodes[2].partition.log.durable_offset == 3)
    cluster.clock.advance(LAG_MS_MAX)
    leader.broker.proposals.look(cluster.clock.monotonic_ms())

    await until(lambda: 3 not in cluster.state.in_sync)


@pytest.mark.slow
async def test_a_fenced_follower_does_not_join(cluster: Replicated) -> None:
    await fall_behind(cluster, 3)
    cluster.commit(cluster.controller.fence_broker(3))
    await cluster.tell(1, 2, 3)
    asked = len(cluster.asked)

    cluster.nodes[3].links.mend()
    await until(lambda: cluster.nodes[3].partition.log.durable_offset == 1)
    await cluster.nodes[1].produce("more")

    assert (cluster.state.in_sync, len(cluster.asked)) == ((1, 2), asked)


@pytest.mark.slow
async def test_a_proposal_of_an_earlier_registration_of_the_follower_is_refused(
    cluster: Replicated,
) -> None:
    await fall_behind(cluster, 3)
    third = cluster.nodes[3]
    old_epoch = third.broker.broker_epoch
    cluster.register(third)  # nobody has heard of it yet
    third.broker.broker_epoch, cluster.is_told = old_epoch, False

    third.links.mend()
    await until(lambda: len(cluster.asked) > 1)
    leader = cluster.nodes[1].partition.leader
    assert isinstance(leader, Leader)

    assert cluster.state.in_sync == (1, 2)
    await until(lambda: leader.pending is None)
    await cluster.tell(1)
    asked = len(cluster.asked)
    await cluster.nodes[1].produce("more")
    assert leader.in_sync == {1, 2} and len(cluster.asked) == asked


def altered(topic_id: object, index: int, *in_sync: int, epoch: int = 0) -> AlterPartitionTopic:
    part = AlteredPartition(
        partition_index=index,
        new_isr_with_epochs=[InSyncBroker(broker_id=each) for each in in_sync],
        partition_epoch=epoch,
    )
    return AlterPartitionTopic(topic_id=topic_id, partitions=[part])  # type: ignore[arg-type]


async def test_the_controller_answers_with_the_partition_as_it_is_now() -> None:
    broker = await started(MemoryFiles())
    await create(broker, TOPIC)
    topic = broker.image.topic(TOPIC)
    assert topic is not None

    async def alter(*in_sync: int, broker_epoch: int, epoch: int = 0) -> object:
        request = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=broker_epoch,
            topics=[altered(topic.topic_id, 0, *in_sync, epoch=epoch)],
        )
        answer = await ask(broker, request)
        if answer.error_code:
            return answer.error_code
        part = answer.topics[0].partitions[0]
        return part.error_code or (part.leader_id, part.isr, part.partition_epoch)

    assert await alter(1, broker_epoch=broker.broker_epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert await alter(1, broker_epoch=broker.broker_epoch) == (1, (1,), 0)
    assert await alter(1, 2, broker_epoch=broker.broker_epoch) == ErrorCode.INVALID_REQUEST
    newer = await alter(1, broker_epoch=broker.broker_epoch, epoch=5)
    assert newer == ErrorCode.NOT_CONTROLLER
    await broker.close()
