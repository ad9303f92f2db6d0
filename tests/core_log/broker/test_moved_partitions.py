"""Partitions move between running brokers: with their records, under writes, and off the disks that
they leave."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from headwater.core_log.broker import active_controller
from headwater.core_log.broker.active_controller import ClusterBalance
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    TopicPartitions,
)
from headwater.core_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headwater.core_log.replication.metadata_records import PartitionRecord
from tests.builders import DATA, batch
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.slow

TOPIC, PARTITION = "t", DATA / "log" / "t-0"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for node_id in (1, 2, 3, 4):
        await cluster.start(node_id)
    await cluster.until(lambda: all(len(e.quorum.voters) == 3 for e in cluster.brokers.values()))
    await ask(
        cluster,
        1,
        CreateTopicsRequest(
            topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]
        ),
    )
    yield cluster
    await cluster.close()


async def ask(cluster: Cluster, node_id: int, request: Any, version_max: int = 99) -> Any:
    client = await cluster.client_of(node_id)
    try:
        return await client.ask(request, version_max=version_max)
    finally:
        client.close()


def partition(cluster: Cluster, node_id: int | None = None) -> PartitionRecord:
    broker = next(iter(cluster.brokers.values())) if node_id is None else cluster.brokers[node_id]
    found = broker.image.partition(TOPIC, 0)
    assert found is not None
    return found


async def produce(cluster: Cluster, *values: str) -> int:
    """Returns the offset at which the leader has committed these."""
    part = PartitionProduceData(index=0, records=memoryview(batch(*values)))
    topic = TopicProduceData(name=TOPIC, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
    answer = await ask(cluster, partition(cluster).leader, request, 12)
    said = answer.responses[0].partition_responses[0]
    assert said.error_code == ErrorCode.NONE, ErrorCode(said.error_code).name
    return int(said.base_offset)


async def move(cluster: Cluster, node_id: int, replicas: Sequence[int] | None) -> ErrorCode:
    part = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name=TOPIC, partitions=[part])
    answer = await ask(cluster, node_id, AlterPartitionReassignmentsRequest(topics=[topic]))
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def is_moved(cluster: Cluster, *replicas: int) -> bool:
    return all(
        (each := partition(cluster, node_id)).replicas == replicas
        and not each.assignment.is_moving
        and set(each.in_sync) == set(replicas)
        for node_id in cluster.brokers
    )


def names_of(cluster: Cluster, node_id: int) -> list[str]:
    files = cluster.files[node_id]
    assert isinstance(files, MemoryFiles)
    return [name for name in files.names(DATA / "log") if name.startswith("t-0")]


async def test_a_partition_moves_with_its_records_and_leaves_no_files(cluster: Cluster) -> None:
    first = partition(cluster).replicas[0]
    await produce(cluster, "a", "b")
    target = [each for each in (1, 2, 3, 4) if each != first][:2]

    assert await move(cluster, target[1], target) is ErrorCode.NONE

    await cluster.until(lambda: is_moved(cluster, *target))
    assert await produce(cluster, "c") == 2
    await cluster.until(lambda: not names_of(cluster, first))
    assert all(names_of(cluster, each) == ["t-0"] for each in target)
    assert cluster.brokers[first].unserved == []


async def test_a_partition_moves_back_to_where_it_was(cluster: Cluster) -> None:
    first = partition(cluster).replicas[0]
    await produce(cluster, "a")
    other = first % 4 + 1
    await move(cluster, 1, [other])
    await cluster.until(lambda: is_moved(cluster, other))
    await produce(cluster, "b")

    await move(cluster, 1, [first])

    await cluster.until(lambda: is_moved(cluster, first))
    assert await produce(cluster, "c") == 2
    log = cluster.brokers[first].replicas.replica(TOPIC, 0)
    assert log is not None and log.log.end_offset == 3


async def test_a_move_is_listed_while_its_target_is_away_and_can_be_cancelled(
    cluster: Cluster,
) -> None:
    first = partition(cluster).replicas[0]
    away, here = ([each for each in (2, 3, 4) if each != first] + [1])[:2]
    cluster.kill(away)
    await cluster.until(lambda: not cluster.brokers[here].image.is_alive(away))
    await move(cluster, here, [away])

    listed = await ask(cluster, here, ListPartitionReassignmentsRequest())
    elsewhere = await move(cluster, here, None)
    again = await move(cluster, here, None)

    found = listed.topics[0].partitions[0]
    assert (listed.topics[0].name, found.partition_index) == (TOPIC, 0)
    assert (list(found.replicas), list(found.adding_replicas)) == ([away, first], [away])
    assert list(found.removing_replicas) == [first]
    assert elsewhere is ErrorCode.NONE and again is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await produce(cluster, "a") == 0


async def test_a_broker_that_was_down_when_its_replica_moved_removes_the_files(
    cluster: Cluster,
) -> None:
    first = partition(cluster).replicas[0]
    others = [each for each in (1, 2, 3, 4) if each != first]
    await move(cluster, first, [first, *others[:1]])
    await cluster.until(lambda: is_moved(cluster, first, *others[:1]))
    await produce(cluster, "a")
    cluster.kill(first)
    here = others[1]
    await cluster.until(lambda: not cluster.brokers[here].image.is_alive(first))
    await cluster.until(lambda: partition(cluster, here).leader == others[0])

    await move(cluster, here, others[:2])
    await cluster.until(lambda: is_moved(cluster, *others[:2]))
    before = names_of(cluster, first)
    await cluster.start(first)

    assert before == ["t-0"]
    await cluster.until(lambda: not names_of(cluster, first))


async def test_the_first_replica_leads_again_after_an_election(cluster: Cluster) -> None:
    await move(cluster, 1, [4, 3])
    await cluster.until(lambda: is_moved(cluster, 4, 3))
    await move(cluster, 1, [3, 4])
    await cluster.until(lambda: is_moved(cluster, 3, 4))
    before = partition(cluster).leader
    request = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0, 7])]
    )

    answer = await ask(cluster, 2, request)

    codes = [each.error_code for each in answer.replica_election_results[0].partition_result]
    assert before == 4
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await cluster.until(lambda: partition(cluster).leader == 3)
    assert await produce(cluster, "a") == 0


async def test_the_controller_lets_first_replicas_lead_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await move(cluster, 1, [4, 3])
    await cluster.until(lambda: is_moved(cluster, 4, 3))
    await move(cluster, 1, [3, 4])
    await cluster.until(lambda: is_moved(cluster, 3, 4))
    monkeypatch.setattr(active_controller, "LEADERS_MS", 0)
    controller = cluster.controller
    assert controller is not None

    await ClusterBalance(controller, now_ms=0).look(0)

    await cluster.until(lambda: partition(cluster).leader == 3)


async def test_a_broker_that_is_empty_and_gone_is_unregistered(cluster: Cluster) -> None:
    await move(cluster, 1, [1])
    await cluster.until(lambda: is_moved(cluster, 1))
    alive = await ask(cluster, 2, UnregisterBrokerRequest(broker_id=4))
    cluster.kill(4)
    await cluster.until(lambda: not cluster.brokers[2].image.is_alive(4))

    gone = await ask(cluster, 2, UnregisterBrokerRequest(broker_id=4))
    votes = await ask(cluster, 2, UnregisterBrokerRequest(broker_id=1))

    assert alive.error_code == votes.error_code == ErrorCode.POLICY_VIOLATION
    assert gone.error_code == ErrorCode.NONE
    assert sorted(cluster.brokers[2].image.brokers) == [1, 2, 3]
    await cluster.start(4)
    assert sorted(cluster.brokers[2].image.alive) == [1, 2, 3, 4]
