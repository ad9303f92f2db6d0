"""min.insync.replicas of three brokers: every leader counts by it, and Kafka's tools see and set
it."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.broker.administration import ConfigResourceType
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.replication.config_keys import ConfigSource
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.topic_config import MIN_IN_SYNC
from tests.core_log.broker.cluster_in_memory import Cluster

pytestmark = pytest.mark.slow

ALL_BROKERS = ""
SET = 0


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def create(cluster: Cluster, name: str, replicas: int) -> None:
    client = await cluster.client_of(1)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
    answer = await client.ask(CreateTopicsRequest(topics=(topic,)))
    client.close()
    assert answer.topics[0].error_code == ErrorCode.NONE


def least_of(cluster: Cluster, topic: str) -> list[int]:
    """What each present leader asks for."""
    found = [each.find_led(topic, 0) for each in cluster.brokers.values()]
    leaders = [each.leader for each in found if each is not None]
    return [each.min_in_sync for each in leaders if isinstance(each, Leader)]


async def test_topics_made_before_the_third_broker_ask_for_two_disks_after_it(
    cluster: Cluster,
) -> None:
    await cluster.start(1)
    await cluster.start(2)
    await create(cluster, "earlier", 2)
    assert least_of(cluster, "earlier") == [1]

    await cluster.start(3)

    await cluster.until(lambda: least_of(cluster, "earlier") == [2])
    await create(cluster, "later", 3)
    await cluster.until(lambda: least_of(cluster, "later") == [2])


async def test_the_default_of_the_cluster_is_shown_and_set_by_any_broker(cluster: Cluster) -> None:
    for node in (1, 2, 3):
        await cluster.start(node)
    await create(cluster, "t", 3)
    await cluster.until(lambda: all(each.image.cluster_config for each in cluster.brokers.values()))
    client = await cluster.client_of(3)

    async def described() -> list[tuple[str, str | None, int, bool]]:
        wanted = DescribeConfigsResource(
            resource_type=ConfigResourceType.BROKER,
            resource_name=ALL_BROKERS,
            configuration_keys=None,
        )
        answer = await client.ask(DescribeConfigsRequest(resources=[wanted]))
        return [
            (each.name, each.value, each.config_source, each.read_only)
            for each in answer.results[0].configs
        ]

    async def alter(operation: int, value: str | None) -> int:
        change = AlterableConfig(name=MIN_IN_SYNC, config_operation=operation, value=value)
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.BROKER, resource_name=ALL_BROKERS, configs=[change]
        )
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        return answer.responses[0].error_code

    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert await described() == [(MIN_IN_SYNC, "2", source, False)]
    assert await alter(SET, "3") == ErrorCode.NONE
    assert await described() == [(MIN_IN_SYNC, "3", source, False)]
    await cluster.until(lambda: least_of(cluster, "t") == [3])
    assert await alter(1, None) == ErrorCode.INVALID_CONFIG, "it can be set only"
    client.close()
