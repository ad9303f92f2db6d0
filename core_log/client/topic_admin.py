"""Topics of a cluster: creates them, checks what there is, lists, describes and changes them."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import together
from headwater.core_log.client.retry_policy import UnknownTopic, check
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from headwater.core_log.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.protocol.messages.metadata import MetadataResponseTopic

TOPIC = 2  # a resource whose configuration is requested
NAMES_ONLY = 5  # DeleteTopics: later versions name topics by id, too
SET, UNSET = 0, 1  # operations of IncrementalAlterConfigs
DYNAMIC_TOPIC = 1  # the source of a setting of this topic itself


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    value: str | None
    is_default: bool


class TopicAdmin:
    """Administration of topics; every answer comes from the cluster, without a cache."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self) -> list[TopicDescription]:
        async def attempt() -> list[TopicDescription]:
            response = await self._cluster.metadata(None)
            return sorted(map(_topic, response.topics), key=lambda topic: topic.name)

        return await self._cluster.persist(attempt)

    async def describe(self, name: str) -> TopicDescription:
        async def attempt() -> TopicDescription:
            response = (await self._cluster.metadata([name])).topics[0]
            check(response.error_code, topic=name)
            return _topic(response)

        return await self._cluster.persist(attempt)

    async def config(self, name: str) -> list[TopicConfig]:
        found = await self._configs(name)
        return [
            TopicConfig(each.name, each.value, each.config_source != DYNAMIC_TOPIC)
            for each in sorted(found.values(), key=lambda config: config.name)
        ]

    async def config_of_each(self, names: Iterable[str], key: str) -> Mapping[str, str | None]:
        """Returns one key of the configuration of several topics, by one request; of topics that
        are gone nothing."""
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=[key]
            )
            for name in names
        ]

        async def attempt() -> Mapping[str, str | None]:
            response = await self._cluster.ask_any(DescribeConfigsRequest(resources=resources))
            return {
                each.resource_name: next((one.value for one in each.configs), None)
                for each in response.results
                if not each.error_code
            }

        return await self._cluster.persist(attempt)

    async def sizes(self) -> Mapping[TopicPartition, int]:
        """Returns the bytes of each partition on disk: of several replicas the largest."""

        async def attempt() -> Mapping[TopicPartition, int]:
            found: dict[TopicPartition, int] = {}
            for node in await self._cluster.nodes():
                for directory in (await node.ask(DescribeLogDirsRequest(topics=None))).results:
                    if directory.error_code != ErrorCode.KAFKA_STORAGE_ERROR:  # it still has them
                        check(directory.error_code)
                    for topic in directory.topics:
                        for part in topic.partitions:
                            place = TopicPartition(topic.name, part.partition_index)
                            found[place] = max(found.get(place, 0), part.partition_size)
            return found

        return await self._cluster.persist(attempt)

    async def ensure(self, topics: Sequence[TopicSettings]) -> None:
        """Returns when every partition has a leader; raises ConfigError if a topic differs."""
        made = await self._create_new(topics)
        await together(self._ensure(topic, is_new=topic.name in made) for topic in topics)

    async def _ensure(self, topic: TopicSettings, *, is_new: bool) -> None:
        if is_new:
            await self._until_there(topic.name, partitions_led=topic.partitions)
        else:
            await self._until_there(topic.name)
            await self._check_same(topic)

    async def _create_new(self, topics: Sequence[TopicSettings]) -> Set[str]:
        """Creates all in one request, so that the broker syncs once for all. Returns the new
        ones."""
        made, wanted = set[str](), {topic.name: topic for topic in topics}

        async def attempt() -> None:
            request = CreateTopicsRequest(
                topics=[_creatable(topic, self._cluster.settings) for topic in wanted.values()],
                timeout_ms=self._cluster.settings.request_wait_ms_max,
            )
            for response in (await self._cluster.ask_any(request)).topics:
                if ErrorCode(response.error_code) is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    check(response.error_code, message=response.error_message, topic=response.name)
                    made.add(response.name)
                wanted.pop(response.name, None)

        await self._cluster.persist(attempt)
        return made

    async def partition_count(self, topic: str) -> int:
        async def attempt() -> int:
            return len((await self._cluster.topic(topic)).leaders)

        return await self._cluster.persist(attempt)

    async def _configs(
        self, topic: str, keys: Iterable[str] | None = None
    ) -> Mapping[str, DescribeConfigsResourceResult]:
        """Returns the topic's configuration by Kafka's names, including defaults."""
        names = None if keys is None else list(keys)
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=names
        )
        request = DescribeConfigsRequest(resources=[resource])

        async def attempt() -> Mapping[str, DescribeConfigsResourceResult]:
            response = (await self._cluster.ask_any(request)).results[0]
            check(response.error_code, message=response.error_message, topic=topic)
            return {config.name: config for config in response.configs}

        return await self._cluster.persist(attempt)

    async def _until_there(self, topic: str, *, partitions_led: int = 0) -> None:
        """Waits until a new topic is known to every node."""

        async def attempt() -> None:
            try:
                leaders = (await self._cluster.topic(topic)).leaders
            except UnknownTopic as unknown:
                raise RetriableFailure(
                    "the topic is not known everywhere yet", topic=topic
                ) from unknown
            if partitions_led and (len(leaders) < partitions_led or min(leaders.values()) < 0):
                raise RetriableFailure("the topic has no leaders yet", topic=topic)

        await self._cluster.persist(attempt)

    async def _check_same(self, topic: TopicSettings) -> None:
        count = topic.partitions
        if not topic.keeps_partitions:
            count = await self.partition_count(topic.name)
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
        found = await self._configs(topic.name, topic.config)
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

    async def create(self, topic: TopicSettings) -> None:
        if not await self._create_new([topic]):
            raise LogRejected("topic exists already", topic=topic.name)

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topic_names=[name], timeout_ms=self._cluster.settings.request_wait_ms_max
        )

        async def attempt() -> None:
            response = (await self._cluster.ask_any(request, version_max=NAMES_ONLY)).responses[0]
            check(response.error_code, message=response.error_message, topic=name)

        await self._cluster.persist(attempt)
        self._cluster.forget_topic(name)

    async def add_partitions(self, name: str, count: int) -> None:
        """Adds partitions until the topic has `count`; keys then go to other partitions than
        before."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=self._cluster.settings.request_wait_ms_max,
        )

        async def attempt() -> None:
            response = (await self._cluster.ask_any(request)).results[0]
            check(response.error_code, message=response.error_message, topic=name)

        await self._cluster.persist(attempt)
        self._cluster.forget_topic(name)

    async def alter(
        self, name: str, *, set_to: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """Changes settings; a removed one falls back to the cluster's default."""
        changes = [
            AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in (set_to or {}).items()
        ]
        changes += [AlterableConfig(name=key, config_operation=UNSET, value=None) for key in unset]
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])

        async def attempt() -> None:
            response = (await self._cluster.ask_any(request)).responses[0]
            check(response.error_code, message=response.error_message, topic=name)

        await self._cluster.persist(attempt)

    async def delete_records(self, before: Offsets) -> Offsets:
        """Moves up the starts of partitions; returns the new starts."""

        async def attempt(partition: TopicPartition, offset: int) -> int:
            node = await self._cluster.leader(partition)
            part = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            response = await node.ask(
                DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=partition.topic, partitions=[part])],
                    timeout_ms=self._cluster.settings.request_wait_ms_max,
                )
            )
            result = response.topics[0].partitions[0]
            self._cluster.check(result.error_code, partition)
            return result.low_watermark

        return {
            partition: await self._cluster.persist(partial(attempt, partition, offset))
            for partition, offset in before.items()
        }


def _creatable(topic: TopicSettings, settings: KafkaSettings) -> CreatableTopic:
    factor = topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=settings.replication_factor if factor < 0 else factor,
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.config.items()],
    )


def _parts(value: str) -> set[str]:
    """Returns the parts of a list: `compact,delete` and `delete, compact` are the same policy."""
    return {part.strip() for part in value.split(",")}


def _topic(response: MetadataResponseTopic) -> TopicDescription:
    assert response.name is not None, "a topic asked for by name is answered by name"
    partitions = (
        PartitionDescription(
            part.partition_index, part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes)
        )
        for part in sorted(response.partitions, key=lambda part: part.partition_index)
    )
    return TopicDescription(
        response.name, response.topic_id, response.is_internal, tuple(partitions)
    )
