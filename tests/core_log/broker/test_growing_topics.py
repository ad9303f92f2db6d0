"""A broker dies before the topics have grown to the brokers that joined: the other two go on."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.broker.active_controller import GROWTH_MS, ClusterBalance
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.test_moved_partitions import TOPIC, ask, is_moved, partition, produce

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def create(cluster: Cluster) -> None:
    """With as many replicas as there are live brokers."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1)
    await ask(cluster, 1, CreateTopicsRequest(topics=[topic]))
    assert len(partition(cluster, 1).replicas) == 2


async def until_all_vote(cluster: Cluster) -> None:
    await cluster.until(lambda: all(len(e.quorum.voters) == 3 for e in cluster.brokers.values()))


async def kill(cluster: Cluster, node_id: int) -> None:
    cluster.kill(node_id)
    await cluster.until(lambda: partition(cluster, 1).in_sync == (1,))


async def look(cluster: Cluster) -> None:
    """The work that the controller does from time to time, now."""
    await cluster.until(lambda: cluster.controller is not None)
    assert cluster.controller is not None
    await ClusterBalance(cluster.controller, now_ms=-GROWTH_MS).look(0)


async def test_a_topic_of_two_replicas_is_written_when_a_third_broker_has_just_joined_and_one_dies(
    cluster: Cluster,
) -> None:
    await cluster.start(1)
    await cluster.start(2)
    await create(cluster)
    await cluster.start(3)
    await until_all_vote(cluster)
    assert cluster.controller is not None
    await ClusterBalance(cluster.controller, now_ms=0).look(0)

    await kill(cluster, 2)

    assert await produce(cluster, "a") == 0
    await look(cluster)
    await cluster.until(lambda: set(partition(cluster, 1).in_sync) == {1, 3})
    assert await produce(cluster, "b") == 1


async def test_a_topic_that_refuses_writes_gets_a_replica_on_the_broker_that_is_left(
    cluster: Cluster,
) -> None:
    """It was made while the third broker was away, and the second dies once that one is back."""
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await until_all_vote(cluster)
    await cluster.until(lambda: all(each.image.cluster_config for each in cluster.brokers.values()))
    cluster.kill(3)
    await cluster.until(lambda: not cluster.brokers[1].image.is_alive(3))
    await create(cluster)
    await cluster.start(3)
    await kill(cluster, 2)

    await look(cluster)

    await cluster.until(lambda: set(partition(cluster, 1).in_sync) == {1, 3})
    assert await produce(cluster, "a") == 0
    await cluster.start(2)
    await cluster.until(lambda: is_moved(cluster, *partition(cluster, 1).replicas))
    assert sorted(partition(cluster, 1).replicas) == [1, 2, 3]
