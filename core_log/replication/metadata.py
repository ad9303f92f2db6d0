"""The cluster's state from the records of its metadata log: topics, partitions, brokers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from uuid import UUID

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.metadata_records import (
    FIRST_VERSION,
    METADATA_FEATURE,
    AclRecord,
    BrokerConfigRecord,
    BrokerFenceRecord,
    BrokerRecord,
    BrokerRemovalRecord,
    ClientQuotaRecord,
    ClusterConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAclRecord,
    RemoveScramRecord,
    RemoveTopicRecord,
    ScramRecord,
    TopicConfigRecord,
    TopicRecord,
    TopicReplicasRecord,
    metadata_version_needed,
)
from headwater.core_log.security.acls import (
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.quotas import QuotaEntity

NO_LEADER = -1
METADATA_TOPIC = "__cluster_metadata"
METADATA_ID = UUID("00000000-0000-0000-0000-000000000001")
"""The topic id that Kafka reserves for the metadata topic."""
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics that Kafka calls internal: clients leave them out of pattern subscriptions."""


@dataclass(slots=True)
class Topic:
    """A topic as last committed. Only `MetadataImage.apply` changes it."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)
    """Every partition in its newest state, as a record that would create it."""
    config: dict[str, str] = field(default_factory=dict)
    """Values set on the topic itself; see `topic_config.py` for the rest."""
    has_fixed_replicas: bool = False
    """Whether the number of replicas stays as it is when there are more brokers."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(slots=True)
class MetadataChanges:
    """The net changes of several records, for their listeners. A topic that these records create
    and remove is not in it."""

    topics_created: dict[UUID, Topic] = field(default_factory=dict)
    topics_removed: dict[UUID, Topic] = field(default_factory=dict)
    partitions_added: dict[tuple[UUID, int], PartitionRecord] = field(default_factory=dict)
    """New partitions, including those of new topics."""
    partitions_changed: dict[tuple[UUID, int], PartitionRecord] = field(default_factory=dict)
    """Partitions with a new leader, epoch, in-sync set or assignment; none of them is in
    `partitions_added`."""
    configs_changed: dict[UUID, Topic] = field(default_factory=dict)
    """Existing topics only, all of them if a default of the cluster has changed; the configuration
    of a new topic comes with the topic."""
    has_other_acls: bool = False
    """Whether ACLs were created or removed."""
    has_other_quotas: bool = False
    """Whether quotas of clients were set or removed."""

    def forget(self, topic: Topic) -> None:
        topic_id = topic.topic_id
        if self.topics_created.pop(topic_id, None) is None:
            self.topics_removed[topic_id] = topic
        self.configs_changed.pop(topic_id, None)
        for index in topic.partitions:
            self.partitions_added.pop((topic_id, index), None)
            self.partitions_changed.pop((topic_id, index), None)


class MetadataImage:
    """All committed metadata, by name and by id. It does not change between two awaits."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.brokers: dict[int, BrokerRecord] = {}
        self.features: dict[str, int] = {}
        self.cluster_config: dict[str, str] = {}
        """Defaults for all topics, which precede those in the settings of brokers."""
        self.broker_config: dict[int | None, dict[str, str]] = {}
        """Settings of running brokers, by broker; those of None hold where a broker has none."""
        self.acls: dict[UUID, Acl] = {}
        self.scram: dict[tuple[str, str], ScramRecord] = {}
        """The passwords of users, by user and mechanism."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        """The quotas of clients, by entity and key."""
        self.next_producer_id = 0
        self.end_offset = 0
        """The offset of the next record of the metadata log; everything below is applied."""
        self._changes = MetadataChanges()

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> PartitionRecord | None:
        topic = self.topics.get(name)
        return None if topic is None else topic.partitions.get(index)

    def topic_config(self, name: str) -> Mapping[str, str]:
        topic = self.topics.get(name)
        return {} if topic is None else topic.config

    def broker_setting(self, broker_id: int, name: str) -> str | None:
        """Returns the value of a setting that running brokers take; None without one."""
        for each in (broker_id, None):
            if name in (values := self.broker_config.get(each, {})):
                return values[name]
        return None

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    @property
    def partitions(self) -> Iterator[tuple[Topic, PartitionRecord]]:
        """Yields every partition with its topic."""
        for topic in self.topics.values():
            for each in topic.partitions.values():
                yield topic, each

    @property
    def alive(self) -> list[int]:
        return sorted(each for each in self.brokers if self.is_alive(each))

    @property
    def has_short_cuts(self) -> bool:
        """Whether the log has one broker, so that its transactions take short cuts (decision 7)."""
        return len(self.brokers) <= 1

    @property
    def controller_id(self) -> int:
        """The broker to which clients send administrative requests. Any live broker would do, as in
        KRaft, where brokers forward them to the controller. It is the lowest id, so that all
        brokers give the same answer."""
        return min(self.alive, default=-1)

    @property
    def record_count(self) -> int:
        """The approximate number of records of a snapshot."""
        topics = self.topics.values()
        of_topics = sum(1 + len(each.partitions) + len(each.config) for each in topics)
        of_quotas = sum(map(len, self.quotas.values())) + sum(map(len, self.broker_config.values()))
        return of_topics + len(self.acls) + len(self.scram) + of_quotas

    def apply(self, records: Iterable[MetadataRecord], end_offset: int) -> MetadataChanges:
        """Applies the committed records that end at `end_offset`."""
        self._changes = MetadataChanges()
        for record in records:
            self._take(record)
        self.end_offset = end_offset
        return self._changes

    def replace(self, records: Iterable[MetadataRecord], end_offset: int) -> MetadataChanges:
        """Takes the state of a snapshot in place of everything; returns how it differs."""
        before, defaults = dict(self.topics_by_id), self.cluster_config
        acls, quotas = self.acls, self.quotas
        self.topics, self.topics_by_id, self.brokers, self.features = {}, {}, {}, {}
        self.acls, self.scram, self.quotas, self.cluster_config = {}, {}, {}, {}
        self.broker_config = {}
        self.next_producer_id = 0
        self.apply(records, end_offset)
        changes = MetadataChanges(
            has_other_acls=acls != self.acls, has_other_quotas=quotas != self.quotas
        )
        for topic_id, topic in before.items():
            if topic_id not in self.topics_by_id:
                changes.topics_removed[topic_id] = topic
        for topic_id, topic in self.topics_by_id.items():
            known = before.get(topic_id)
            if known is None:
                changes.topics_created[topic_id] = topic
            elif known.config != topic.config or defaults != self.cluster_config:
                changes.configs_changed[topic_id] = topic
            for index, record in topic.partitions.items():
                earlier = None if known is None else known.partitions.get(index)
                if earlier is None:
                    changes.partitions_added[topic_id, index] = record
                elif earlier != record:
                    changes.partitions_changed[topic_id, index] = record
        return changes

    def may_have(self, records: Iterable[MetadataRecord]) -> bool:
        """Whether all brokers of the cluster read these records."""
        version = self.features.get(METADATA_FEATURE, FIRST_VERSION)
        return all(metadata_version_needed(each) <= version for each in records)

    def records(self) -> Iterable[MetadataRecord]:
        """Yields the fewest records that build this image from nothing: a snapshot."""
        for feature, level in sorted(self.features.items()):
            yield FeatureLevelRecord(feature, level)
        for name, value in sorted(self.cluster_config.items()):
            yield ClusterConfigRecord(name, value)
        yield from self.brokers.values()
        for broker_id, config in self.broker_config.items():
            yield from (BrokerConfigRecord(broker_id, *each) for each in config.items())
        yield from self.scram.values()
        if self.next_producer_id:
            yield ProducerIdsRecord(-1, -1, self.next_producer_id)
        for acl_id, acl in self.acls.items():
            yield acl_record(acl_id, acl)
        for entity, limits in self.quotas.items():
            for key, limit in limits.items():
                yield ClientQuotaRecord(*entity, key=key, value=limit)
        for topic in self.topics.values():
            yield TopicRecord(topic.name, topic.topic_id, topic.has_fixed_replicas)
            for name, value in topic.config.items():
                yield TopicConfigRecord(topic.topic_id, name, value)
            yield from topic.partitions.values()

    @singledispatchmethod
    def _take(self, record: MetadataRecord) -> None:
        raise AssertionError(f"no way to apply {type(record).__name__}")

    @_take.register
    def _(self, record: TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise CorruptLog("metadata creates a topic that exists", topic=record.name)
        fixed = record.has_fixed_replicas
        topic = Topic(record.name, record.topic_id, has_fixed_replicas=fixed)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        self._changes.topics_created[topic.topic_id] = topic

    @_take.register
    def _(self, record: TopicReplicasRecord) -> None:
        self._find_known(record.topic_id).has_fixed_replicas = record.has_fixed_replicas

    @_take.register
    def _(self, record: RemoveTopicRecord) -> None:
        topic = self._find_known(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self._changes.forget(topic)

    @_take.register
    def _(self, record: PartitionRecord) -> None:
        self._find_known(record.topic_id).partitions[record.partition] = record
        self._changes.partitions_added[record.topic_id, record.partition] = record

    @_take.register
    def _(self, record: PartitionChangeRecord) -> None:
        partitions = self._find_known(record.topic_id).partitions
        before = partitions.get(record.partition)
        if before is None or record.partition_epoch <= before.partition_epoch:
            raise CorruptLog(
                "metadata changes a partition in the wrong order", partition=record.partition
            )
        after = replace(
            before,
            in_sync=record.in_sync,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            eligible=record.eligible,
            doubtful=record.doubtful,
            replicas=before.replicas if record.replicas is None else record.replicas,
            adding=before.adding if record.adding is None else record.adding,
            removing=before.removing if record.removing is None else record.removing,
        )
        key, changes = (record.topic_id, record.partition), self._changes
        partitions[record.partition] = after
        if key in changes.partitions_added:
            changes.partitions_added[key] = after
        else:
            changes.partitions_changed[key] = after

    @_take.register
    def _(self, record: TopicConfigRecord) -> None:
        topic = self._find_known(record.topic_id)
        if record.value is None:
            topic.config.pop(record.name, None)
        else:
            topic.config[record.name] = record.value
        if topic.topic_id not in self._changes.topics_created:
            self._changes.configs_changed[topic.topic_id] = topic

    @_take.register
    def _(self, record: ClusterConfigRecord) -> None:
        self.cluster_config[record.name] = record.value
        changes = self._changes
        for topic_id, topic in self.topics_by_id.items():
            if topic_id not in changes.topics_created:
                changes.configs_changed[topic_id] = topic

    @_take.register
    def _(self, record: BrokerConfigRecord) -> None:
        values = self.broker_config.setdefault(record.broker_id, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.broker_config[record.broker_id]

    @_take.register
    def _(self, record: BrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    @_take.register
    def _(self, record: BrokerRemovalRecord) -> None:
        if self.brokers.pop(record.broker_id, None) is None:
            raise CorruptLog("metadata removes an unknown broker", broker_id=record.broker_id)
        self.broker_config.pop(record.broker_id, None)

    @_take.register
    def _(self, record: BrokerFenceRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None:
            raise CorruptLog("metadata fences an unknown broker", broker_id=record.broker_id)
        fenced = record.is_fenced
        self.brokers[record.broker_id] = replace(broker, is_fenced=fenced, is_over=fenced)

    @_take.register
    def _(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    @_take.register
    def _(self, record: FeatureLevelRecord) -> None:
        self.features[record.name] = record.level

    @_take.register
    def _(self, record: AclRecord) -> None:
        self.acls[record.acl_id] = Acl(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            Permission(record.permission),
        )
        self._changes.has_other_acls = True

    @_take.register
    def _(self, record: RemoveAclRecord) -> None:
        if self.acls.pop(record.acl_id, None) is None:
            raise CorruptLog("metadata removes an unknown ACL", acl_id=record.acl_id)
        self._changes.has_other_acls = True

    @_take.register
    def _(self, record: ScramRecord) -> None:
        self.scram[record.user, record.mechanism] = record

    @_take.register
    def _(self, record: RemoveScramRecord) -> None:
        if self.scram.pop((record.user, record.mechanism), None) is None:
            raise CorruptLog("metadata removes an unknown user", user=record.user)

    @_take.register
    def _(self, record: ClientQuotaRecord) -> None:
        entity = QuotaEntity(record.user, record.client_id, record.ip)
        values = self.quotas.setdefault(entity, {})
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]
        self._changes.has_other_quotas = True

    def _find_known(self, topic_id: UUID) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise CorruptLog("metadata has a record of an unknown topic", topic_id=topic_id)
        return topic


def acl_record(acl_id: UUID, acl: Acl) -> AclRecord:
    return AclRecord(
        acl_id,
        acl.resource_type.value,
        acl.resource_name,
        acl.pattern_type.value,
        acl.principal,
        acl.host,
        acl.operation.value,
        acl.permission.value,
    )
