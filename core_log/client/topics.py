"""Creates topics, or checks that existing ones have the required settings."""

from collections.abc import Iterable, Mapping, Sequence, Set

from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import together
from headwater.core_log.client.retry_policy import UnknownTopic
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

TOPIC = 2  # a resource whose configuration is requested


async def ensure_topics(cluster: Cluster, topics: Sequence[TopicSettings]) -> None:
    """Returns when every partition has a leader; raises ConfigError if a topic differs."""
    made = await create_topics(cluster, topics)
    await together(_ensure(cluster, topic, is_new=topic.name in made) for topic in topics)


async def _ensure(cluster: Cluster, topic: TopicSettings, *, is_new: bool) -> None:
    if is_new:
        await _until_there(cluster, topic.name, partitions_led=topic.partitions)
    else:
        await _until_there(cluster, topic.name)
        await _check_same(cluster, topic)


async def create_topics(cluster: Cluster, topics: Sequence[TopicSettings]) -> Set[str]:
    """Creates all in one request, so that the broker syncs once for all of them. Returns the new
    ones."""
    made, wanted = set[str](), {topic.name: topic for topic in topics}

    async def attempt() -> None:
        request = CreateTopicsRequest(
            topics=[_creatable(cluster, topic) for topic in wanted.values()],
            timeout_ms=cluster.settings.request_wait_ms_max,
        )
        for response in (await cluster.ask_any(request)).topics:
            if ErrorCode(response.error_code) is not ErrorCode.TOPIC_ALREADY_EXISTS:
                check(response.error_code, message=response.error_message, topic=response.name)
                made.add(response.name)
            wanted.pop(response.name, None)

    await cluster.persist(attempt)
    return made


def _creatable(cluster: Cluster, topic: TopicSettings) -> CreatableTopic:
    factor = topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=cluster.settings.replication_factor if factor < 0 else factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.config.items()],
    )


async def partition_count(cluster: Cluster, topic: str) -> int:
    async def attempt() -> int:
        return len((await cluster.topic(topic)).leaders)

    return await cluster.persist(attempt)


async def configs(
    cluster: Cluster, topic: str, keys: Iterable[str] | None = None
) -> Mapping[str, DescribeConfigsResourceResult]:
    """Returns the topic's configuration by Kafka's names, including defaults."""
    names = None if keys is None else list(keys)
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=names
    )
    request = DescribeConfigsRequest(resources=[resource])

    async def attempt() -> Mapping[str, DescribeConfigsResourceResult]:
        response = (await cluster.ask_any(request)).results[0]
        check(response.error_code, message=response.error_message, topic=topic)
        return {config.name: config for config in response.configs}

    return await cluster.persist(attempt)


async def _until_there(cluster: Cluster, topic: str, *, partitions_led: int = 0) -> None:
    """Waits until a new topic is known to every node."""

    async def attempt() -> None:
        try:
            leaders = (await cluster.topic(topic)).leaders
        except UnknownTopic as unknown:
            raise RetriableFailure(
                "the topic is not known everywhere yet", topic=topic
            ) from unknown
        if partitions_led and (len(leaders) < partitions_led or min(leaders.values()) < 0):
            raise RetriableFailure("the topic has no leaders yet", topic=topic)

    await cluster.persist(attempt)


async def _check_same(cluster: Cluster, topic: TopicSettings) -> None:
    count = topic.partitions
    if not topic.keeps_partitions:
        count = await partition_count(cluster, topic.name)
    if count != topic.partitions:
        raise ConfigError(
            "topic exists with another number of partitions",
            hint=f"set partitions: {count}, or choose another topic",
            topic=topic.name,
            wanted=topic.partitions,
            found=count,
        )
    if not topic.config:
        return
    found = await configs(cluster, topic.name, topic.config)
    for name, wanted in topic.config.items():
        value = found[name].value if name in found else None
        if value is None or _parts(value) != _parts(wanted):
            raise ConfigError(
                "topic exists with another configuration",
                hint=f"headwater topics config {topic.name} {name}={wanted}",
                topic=topic.name,
                config=name,
                wanted=wanted,
                found=value,
            )


def _parts(value: str) -> set[str]:
    """Returns the parts of a list: `compact,delete` and `delete, compact` are the same policy."""
    return {part.strip() for part in value.split(",")}
