"""A topic with one partition on three brokers in one process, written with acks=all."""

from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.replication.metadata_records import PartitionRecord
from tests.builders import batch, values_of
from tests.core_log.broker.cluster_in_memory import Cluster


async def start_three(cluster: Cluster) -> None:
    for each in (1, 2, 3):
        await cluster.start(each)
    await cluster.until(
        lambda: all(len(each.quorum.voters) == 3 for each in cluster.brokers.values())
    )


async def create(cluster: Cluster, *, factor: int = 3, minimum: int = 2) -> None:
    client = await cluster.client_of(min(cluster.brokers))
    config = CreatableTopicConfig(name="min.insync.replicas", value=str(minimum))
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=factor, configs=(config,))
    answer = await client.ask(CreateTopicsRequest(topics=(topic,)))
    client.close()
    assert answer.topics[0].error_code == ErrorCode.NONE


def record_of(cluster: Cluster, name: str = "t") -> PartitionRecord:
    broker = cluster.controller or next(iter(cluster.brokers.values()))
    record = broker.image.partition(name, 0)
    assert record is not None
    return record


def leader_of(cluster: Cluster) -> Broker | None:
    return cluster.brokers.get(record_of(cluster).leader)


async def produce(cluster: Cluster, *values: str, leader: int | None = None) -> None:
    """Each value in a batch of its own, acknowledged by all in sync."""
    await cluster.until(lambda: leader is not None or leader_of(cluster) is not None)
    node_id = record_of(cluster).leader if leader is None else leader
    for value in values:
        assert await ask_to_append(cluster, node_id, value) == ErrorCode.NONE


async def ask_to_append(cluster: Cluster, node_id: int, value: str) -> int:
    client = await cluster.client_of(node_id)
    part = PartitionProduceData(index=0, records=memoryview(batch(value)))
    topic = TopicProduceData(topic_id=record_of(cluster).topic_id, partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])
    answer = await client.ask(request)
    client.close()
    return answer.responses[0].partition_responses[0].error_code


def stored(broker: Broker) -> list[bytes | None]:
    replica = broker.replicas.replica("t", 0)
    return [] if replica is None else [value for _, value in values_of(replica.log)]
