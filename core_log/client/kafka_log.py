"""The Log over any Kafka-compatible cluster: a Headwater broker, Apache Kafka 4.x, Redpanda."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.coordinators import Coordinators
from headwater.core_log.client.fetcher import Fetcher
from headwater.core_log.client.offsets import LogOffsets
from headwater.core_log.client.producer import ALL_IN_SYNC, append_plainly
from headwater.core_log.client.retry_policy import LOGGED_AFTER_S, RetryLoop
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.settings import SecuritySettings, TopicSettings
from headwater.core_log.links.connection import connect
from headwater.core_log.links.rpc import Dial
from headwater.core_log.model.log import (
    Bounds,
    Fetched,
    FetchLimit,
    Isolation,
    Offsets,
    RetainedRange,
    TopicPartition,
)
from headwater.core_log.records.batch_header import Batch, seal

if TYPE_CHECKING:
    from headwater.core_log.client.access_admin import AclAdmin, UserAdmin
    from headwater.core_log.client.cluster_admin import (
        ClusterAdmin,
        ClusterDescription,
        QuorumDescription,
    )
    from headwater.core_log.client.group_admin import GroupAdmin
    from headwater.core_log.client.membership import Assign, Membership, MembershipTerms
    from headwater.core_log.client.quota_admin import QuotaAdmin, ThrottleAdmin
    from headwater.core_log.client.topic_admin import TopicAdmin
    from headwater.core_log.client.writer import KafkaWriter

logger = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
RENEWS_EPOCHS = 2  # KIP-890
DEFAULT_LIMIT = FetchLimit()


class KafkaLog:
    """A log that connects on first use, without a task of its own. Batches pass through unread.

    Rare operations are imported on first use: half of the messages are for administration and
    writers, and every command would wait for them.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        dial: Dial | None = None,
        random: Random | None = None,
        first_logged_after_s: float = LOGGED_AFTER_S,
    ) -> None:
        if dial is None:
            dial = dialling(settings)
        patience = RetryLoop(
            settings, random or Random(), first_logged_after_s=first_logged_after_s
        )
        self._cluster = Cluster(settings, patience, dial)
        self._coordinators = Coordinators(self._cluster)
        self._offsets = LogOffsets(self._cluster)
        self._fetching = Fetcher(self._cluster, self._offsets)

    @cached_property
    def topics(self) -> "TopicAdmin":
        from headwater.core_log.client.topic_admin import TopicAdmin

        return TopicAdmin(self._cluster)

    @cached_property
    def brokers(self) -> "ClusterAdmin":
        from headwater.core_log.client.cluster_admin import ClusterAdmin

        return ClusterAdmin(self._cluster)

    @cached_property
    def throttles(self) -> "ThrottleAdmin":
        from headwater.core_log.client.quota_admin import ThrottleAdmin

        return ThrottleAdmin(self._cluster)

    @cached_property
    def groups(self) -> "GroupAdmin":
        from headwater.core_log.client.group_admin import GroupAdmin

        return GroupAdmin(self._cluster, self._coordinators)

    def membership(
        self, terms: "MembershipTerms", assign: "Assign", **listeners: "Callable[..., None]"
    ) -> "Membership":
        """A member of a group, with the listeners of `Membership`."""
        from headwater.core_log.client.membership import Membership

        return Membership(self._coordinators, terms, assign, **listeners)

    @cached_property
    def acls(self) -> "AclAdmin":
        from headwater.core_log.client.access_admin import AclAdmin

        return AclAdmin(self._cluster)

    @cached_property
    def users(self) -> "UserAdmin":
        from headwater.core_log.client.access_admin import UserAdmin

        return UserAdmin(self._cluster)

    @cached_property
    def quotas(self) -> "QuotaAdmin":
        from headwater.core_log.client.quota_admin import QuotaAdmin

        return QuotaAdmin(self._cluster)

    @property
    def bootstrap(self) -> Sequence[str]:
        """HOST:PORT of brokers, by which other processes reach the same log."""
        return tuple(self._cluster.settings.bootstrap)

    @property
    def security(self) -> SecuritySettings:
        """How its connections are made."""
        return self._cluster.settings.security

    @property
    def problem(self) -> str:
        """The reason why no broker can be reached; empty if one answers."""
        return self._cluster.problem

    async def ensure_topic(self, *topics: TopicSettings) -> None:
        await self.topics.ensure(topics)

    async def partition_count(self, topic: str) -> int:
        return await self.topics.partition_count(topic)

    async def topic_id(self, topic: str) -> str:
        return str((await self.topics.describe(topic)).topic_id)

    async def writer(self, name: str) -> "KafkaWriter":
        """Returns a writer. Its name is the cluster's transactional.id; the former writer of that
        name is fenced."""
        from headwater.core_log.client.transactions import CoordinatorClient
        from headwater.core_log.client.writer import KafkaWriter

        renews_epochs = await self.is_exactly_once()
        if not renews_epochs:
            logger.warning(
                "writer %s is at least once: the cluster has no transaction.version 2 "
                "(Apache Kafka 4.0 or newer has)",
                name,
            )
        coordinator = CoordinatorClient(
            self._coordinators, name, self._cluster.settings, renews_epochs=renews_epochs
        )
        return KafkaWriter(
            name, await coordinator.identify(), coordinator=coordinator, cluster=self._cluster
        )

    async def describe_cluster(self) -> "ClusterDescription":
        """Asked for anew each time."""
        from headwater.core_log.client.cluster_admin import describe_cluster

        return await describe_cluster(self._cluster)

    async def describe_metadata_version(self) -> int | None:
        """Asked for anew each time."""
        from headwater.core_log.client.cluster_admin import describe_metadata_version

        return await describe_metadata_version(self._cluster)

    async def describe_quorum(self) -> "QuorumDescription":
        """Asked for anew each time."""
        from headwater.core_log.client.cluster_admin import describe_quorum

        return await describe_quorum(self._cluster)

    async def is_exactly_once(self) -> bool:
        """Whether the cluster has finalized the transaction version that exactly-once writers
        need."""
        agreement = await self._cluster.persist(self._cluster.agreement)
        return agreement.features.get(TRANSACTION_VERSION, 0) >= RENEWS_EPOCHS

    async def append(
        self, partition: TopicPartition, batch: Batch, *, acks: int = ALL_IN_SYNC
    ) -> int:
        """Appends with acks=all: only then does the answer mean that the batch is on disk."""
        seal(batch.data)
        return await append_plainly(self._cluster, partition, memoryview(batch.data), acks=acks)

    async def fetch(
        self,
        wanted: Offsets,
        *,
        limit: FetchLimit = DEFAULT_LIMIT,
        isolation: Isolation = Isolation.COMMITTED,
    ) -> Sequence[Fetched]:
        return await self._fetching.fetch(wanted, limit=limit, isolation=isolation)

    async def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        return await self._offsets.bounds(partitions)

    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        return await self._offsets.retained_ranges(partitions)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        return await self._offsets.epoch_ends(epochs)

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], *, timestamp_ms: int
    ) -> Offsets:
        return await self._offsets.at(partitions, timestamp_ms=timestamp_ms)

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        from headwater.core_log.client.group_admin import commit_offsets

        await commit_offsets(self._coordinators, group, offsets)

    async def committed_offsets(self, group: str) -> Offsets:
        from headwater.core_log.client.group_admin import committed_offsets

        return await committed_offsets(self._coordinators, group)

    async def close(self) -> None:
        self._cluster.close()


def dialling(settings: KafkaSettings) -> Dial:
    """Returns the function that connects: plain, or by TLS after a check of the certificates."""
    bytes_max = settings.response_bytes_max
    if not settings.security.is_encrypted:
        return partial(connect, response_bytes_max=bytes_max)
    from headwater.core_log.links.tls import context_of

    return partial(connect, response_bytes_max=bytes_max, tls=context_of(settings.security))
