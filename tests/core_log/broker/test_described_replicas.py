"""Any broker says what its replicas hold, whoever leads them, and takes requests about other
brokers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headwater.core_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.broker.cluster_in_memory import Cluster

TOPIC, PRODUCER = "t", 77
BROKER, DELETE = 4, 1


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three replicas of a partition with one batch."""
    cluster = Cluster()
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
    await ask(cluster, 1, CreateTopicsRequest(topics=[topic]))
    await cluster.until(lambda: all(e.image.topic(TOPIC) for e in cluster.brokers.values()))
    found = cluster.brokers[1].image.partition(TOPIC, 0)
    assert found is not None
    record = PlainRecord(b"k", b"v", timestamp_ms=1)
    data = encode_batch([record], producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    partition = PartitionProduceData(index=0, records=memoryview(data))
    written = TopicProduceData(name=TOPIC, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[written])
    answer = await ask(cluster, found.leader, request, 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    yield cluster
    await cluster.close()


async def ask(cluster: Cluster, node_id: int, request: Any, version_max: int = 99) -> Any:
    client = await cluster.client_of(node_id)
    try:
        return await client.ask(request, version_max=version_max)
    finally:
        client.close()


async def test_each_broker_has_the_sizes_of_its_replicas(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        answer = await ask(cluster, node_id, DescribeLogDirsRequest(topics=None))
        [[held]] = [each.partitions for each in answer.results[0].topics if each.name == TOPIC]
        assert (held.partition_index, held.offset_lag) == (0, 0)
        assert held.partition_size > 0


async def test_followers_know_the_producers_of_their_partitions(cluster: Cluster) -> None:
    for node_id in (1, 2, 3):
        topic = TopicRequest(name=TOPIC, partition_indexes=[0, 1])
        answer = await ask(cluster, node_id, DescribeProducersRequest(topics=[topic]))
        known, unknown = answer.topics[0].partitions
        assert [each.producer_id for each in known.active_producers] == [PRODUCER]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_throttles_of_every_broker_are_deleted_by_any(cluster: Cluster) -> None:
    deletion = AlterableConfig(
        name="leader.replication.throttled.rate", config_operation=DELETE, value=None
    )
    resources = [
        AlterConfigsResource(resource_type=BROKER, resource_name=str(each), configs=[deletion])
        for each in (1, 2, 3)
    ]
    for node_id in (1, 2, 3):
        request = IncrementalAlterConfigsRequest(resources=resources)
        answer = await ask(cluster, node_id, request)
        assert {each.error_code for each in answer.responses} == {ErrorCode.NONE}
