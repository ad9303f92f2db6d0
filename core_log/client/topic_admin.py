"""Topics for administrators: list, describe and change them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from headwater.core_log.client import topics
from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
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
)
from headwater.core_log.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.protocol.messages.metadata import MetadataResponseTopic

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
        found = await topics.configs(self._cluster, name)
        return [
            TopicConfig(each.name, each.value, each.config_source != DYNAMIC_TOPIC)
            for each in sorted(found.values(), key=lambda config: config.name)
        ]

    async def config_of_each(self, names: Iterable[str], key: str) -> Mapping[str, str | None]:
        """Returns one key of the configuration of several topics, by one request; of topics that
        are gone nothing."""
        resources = [
            DescribeConfigsResource(
                resource_type=topics.TOPIC, resource_name=name, configuration_keys=[key]
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

    async def create(self, topic: TopicSettings) -> None:
        if not await topics.create_topics(self._cluster, [topic]):
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
        resource = AlterConfigsResource(
            resource_type=topics.TOPIC, resource_name=name, configs=changes
        )
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
