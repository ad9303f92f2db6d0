"""Decides about the cluster (topics, partitions, configuration, brokers); a decision is a list of
records."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.assignments import (
    REPLICATION_FACTOR_MAX,
    Counts,
    Reassignments,
    assign_more,
    assign_new,
    collision_key,
    name_problem,
    partition_count,
)
from headwater.core_log.replication.config_keys import ConfigType
from headwater.core_log.replication.decisions import (
    DEFAULT,
    NO_ID,
    OVER_QUOTA,
    ConfigChange,
    ConfigOperation,
    Decision,
    Deletion,
    MorePartitions,
    NewTopic,
    Permit,
    ProducerIdBlock,
    RequestRefusal,
    TopicReference,
    permit_all,
)
from headwater.core_log.replication.dynamic_configs import BrokerConfigs, ClusterConfig
from headwater.core_log.replication.elections import (
    NO_LOSSES,
    ElectionRules,
    LeaderElections,
    Losses,
    after_loss,
    after_lower_min,
    after_registration,
    after_unclean_allowed,
    after_unfencing,
    change_in_sync,
)
from headwater.core_log.replication.features import Features
from headwater.core_log.replication.leader import UNKNOWN, InSyncProposal
from headwater.core_log.replication.metadata import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    MetadataImage,
    Topic,
)
from headwater.core_log.replication.metadata_records import (
    BrokerFenceRecord,
    BrokerRecord,
    BrokerRemovalRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
)
from headwater.core_log.replication.topic_config import TopicConfigs, key_of

PARTITIONS_PER_REQUEST_MAX = 10_000  # Kafka's own limit since 4.0
PRODUCER_IDS_PER_BLOCK = 1000
FIRST_EPOCH_S = 1_577_836_800
"""The beginning of 2020, from which leader epochs count: seconds since then fit until 2088."""
INTERNAL_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}


class Controller:
    """The controller. Pure: it reads the committed image and writes nothing. The caller must commit
    the records of one decision before it asks for the next (`MetadataLog.change` does that)."""

    def __init__(
        self,
        image: MetadataImage,
        configs: TopicConfigs,
        *,
        default_partitions: int = 1,
        internal_partitions: int = 16,
        new_id: Callable[[], UUID],
    ) -> None:
        self._image, self._configs, self._new_id = image, configs, new_id
        self._default_partitions = default_partitions
        self.unheard: set[int] = set()
        """Live brokers that have said nothing yet since this controller decides."""
        self._internal_partitions = internal_partitions
        self.elections = LeaderElections(image, self._rules_of)
        self.reassignments = Reassignments(image, self._rules_of)
        self.cluster_config = ClusterConfig(image, configs)
        self.broker_configs = BrokerConfigs(image, self.cluster_config)
        self.features = Features(image)

    @property
    def default_replication_factor(self) -> int:
        """The replicas of a topic that is created without a number: three, or as many as there are
        live brokers."""
        return min(REPLICATION_FACTOR_MAX, max(len(self._image.alive), 1))

    @property
    def _default(self) -> Counts:
        return Counts(self._default_partitions, self.default_replication_factor)

    def topic_on_demand(self, name: str) -> NewTopic:
        """Returns the topic to create when a client uses an unknown one."""
        if name in INTERNAL_TOPICS:
            return NewTopic(name, self._internal_partitions, config=dict(INTERNAL_CONFIG))
        return NewTopic(name)

    def unknown_topic_code(self, name: str) -> ErrorCode:
        """Returns the error code for a client that uses an unknown topic that is not to be
        created."""
        return _unknown_topic(name).code

    def create_topics(
        self, wanted: Sequence[NewTopic], permit: Permit = permit_all
    ) -> Decision[dict[str, Topic | RequestRefusal]]:
        """Returns, by name, the new topic or the error."""
        answer: dict[str, Topic | RequestRefusal] = {}
        records: list[MetadataRecord] = []
        total = sum(max(partition_count(each, self._default), 0) for each in wanted)
        if total > PARTITIONS_PER_REQUEST_MAX:
            return Decision({each.name: _too_many(total) for each in wanted})
        taken = {collision_key(name): name for name in self._image.topics}
        times = Counter(each.name for each in wanted)
        for each in wanted:
            if times[each.name] > 1:
                answer[each.name] = RequestRefusal(
                    ErrorCode.INVALID_REQUEST, "Duplicate topic name"
                )
                continue
            refused = self._name_refused(each.name, taken)
            outcome = refused or self._new_topic(each)
            if isinstance(outcome, Topic) and not permit(len(outcome.partitions)):
                outcome = OVER_QUOTA
            answer[each.name] = outcome
            if isinstance(outcome, Topic):
                taken[collision_key(each.name)] = each.name
                records += _creation(outcome)
        return Decision(answer, records)

    def _name_refused(self, name: str, taken: Mapping[str, str]) -> RequestRefusal | None:
        problem = name_problem(name)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name == METADATA_TOPIC:
            return RequestRefusal(ErrorCode.INVALID_REQUEST, f"{name} cannot be created")
        if self._image.topic(name) is not None:
            return RequestRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists")
        other = taken.get(collision_key(name))
        if other is not None:
            return RequestRefusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with topic '{other}': '.' and '_' count as the same",
            )
        return None

    def _new_topic(self, wanted: NewTopic) -> Topic | RequestRefusal:
        config = new_config(self._configs, wanted.config)
        if isinstance(config, RequestRefusal):
            return config
        replicas = assign_new(self._image, wanted, self._default)
        if isinstance(replicas, RequestRefusal):
            return replicas
        is_chosen = bool(wanted.assignments) or wanted.replication_factor != DEFAULT
        fixed = is_chosen and not self._image.has_short_cuts
        topic = Topic(wanted.name, self._new_id(), config=config, has_fixed_replicas=fixed)
        for index, each in enumerate(replicas):
            topic.partitions[index] = self._new_partition(topic.topic_id, index, each)
        return topic

    def _new_partition(
        self, topic_id: UUID, index: int, replicas: tuple[int, ...]
    ) -> PartitionRecord:
        """Returns the new partition. Nothing is written yet, so every live replica is in sync."""
        in_sync = tuple(each for each in replicas if self._image.is_alive(each))
        return PartitionRecord(topic_id, index, replicas, in_sync, in_sync[0], 0, 0)

    def delete_topics(
        self, wanted: Sequence[TopicReference], permit: Permit = permit_all
    ) -> Decision[list[Deletion]]:
        """Returns one answer per reference, but only one for a topic that is named twice."""
        answer: dict[TopicReference, Deletion] = {}
        doomed: dict[UUID, TopicReference] = {}
        times = Counter(wanted)
        for reference in wanted:
            outcome = self._find_doomed(reference, is_repeated=times[reference] > 1)
            answer[reference] = outcome
            if outcome.refused is None and outcome.topic_id in doomed:
                twice = RequestRefusal(
                    ErrorCode.INVALID_REQUEST, "Topic was named by name and by id"
                )
                for each in (reference, doomed.pop(outcome.topic_id)):
                    answer[each] = Deletion(outcome.name, outcome.topic_id, twice)
            elif outcome.refused is None:
                doomed[outcome.topic_id] = reference
        for topic_id, reference in list(doomed.items()):
            if not permit(len(self._image.topics_by_id[topic_id].partitions)):
                answer[reference] = replace(answer[reference], refused=OVER_QUOTA)
                del doomed[topic_id]
        return Decision(list(answer.values()), [RemoveTopicRecord(each) for each in doomed])

    def _find_doomed(self, reference: TopicReference, *, is_repeated: bool) -> Deletion:
        name, topic_id = reference

        def refused(code: ErrorCode, message: str | None = None) -> Deletion:
            return Deletion(name, topic_id, RequestRefusal(code, message))

        if is_repeated:
            what = "id" if name is None else "name"
            return refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}")
        if (name is None) == (topic_id == NO_ID):
            return refused(ErrorCode.INVALID_REQUEST, "Give either the topic's name or its id")
        if name is None:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                return refused(ErrorCode.UNKNOWN_TOPIC_ID, "Topic id does not exist")
        else:
            topic = self._image.topic(name)
            if topic is None:
                return refused(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist"
                )
        if topic.is_internal:
            return refused(ErrorCode.POLICY_VIOLATION, "Topic stores groups or transactions")
        return Deletion(topic.name, topic.topic_id)

    def create_partitions(
        self, wanted: Sequence[MorePartitions], permit: Permit = permit_all
    ) -> Decision[dict[str, RequestRefusal | None]]:
        answer: dict[str, RequestRefusal | None] = {}
        records: list[MetadataRecord] = []
        times = Counter(each.name for each in wanted)
        room = PARTITIONS_PER_REQUEST_MAX
        for each in wanted:
            topic = self._image.topic(each.name)
            if times[each.name] > 1:
                answer[each.name] = RequestRefusal(
                    ErrorCode.INVALID_REQUEST, "Duplicate topic name"
                )
            elif topic is None:
                answer[each.name] = RequestRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                added = self._more_partitions(topic, each, room)
                if not isinstance(added, RequestRefusal) and not permit(len(added)):
                    added = OVER_QUOTA
                answer[each.name] = added if isinstance(added, RequestRefusal) else None
                if not isinstance(added, RequestRefusal):
                    records += added
                    room -= len(added)
        return Decision(answer, records)

    def _more_partitions(
        self, topic: Topic, wanted: MorePartitions, room: int
    ) -> list[PartitionRecord] | RequestRefusal:
        have = len(topic.partitions)
        if self._configs.is_compacted(topic.config) and wanted.count > have:
            return RequestRefusal(
                ErrorCode.POLICY_VIOLATION,
                "Topic is compacted: with more partitions, records of a key would lie in two of "
                "them; create a new topic with that many and copy",
            )
        if wanted.count - have > room:
            return _too_many(wanted.count - have)
        replicas = assign_more(self._image, topic, wanted)
        if isinstance(replicas, RequestRefusal):
            return replicas
        return [
            self._new_partition(topic.topic_id, have + nth, each)
            for nth, each in enumerate(replicas)
        ]

    def alter_config(
        self, name: str, changes: Iterable[ConfigChange]
    ) -> Decision[RequestRefusal | None]:
        """Changes some keys of a topic's configuration."""
        topic = self._image.topic(name)
        if topic is None:
            return Decision(_unknown_topic(name))
        return self._set_config(topic, changed_config(self._configs, topic.config, changes))

    def replace_config(
        self, name: str, wanted: Mapping[str, str | None]
    ) -> Decision[RequestRefusal | None]:
        """Replaces a topic's whole configuration; keys that are not named get their default."""
        topic = self._image.topic(name)
        if topic is None:
            return Decision(_unknown_topic(name))
        config = new_config(self._configs, wanted, null_code=ErrorCode.INVALID_REQUEST)
        return self._set_config(topic, config)

    def _set_config(
        self, topic: Topic, config: dict[str, str] | RequestRefusal
    ) -> Decision[RequestRefusal | None]:
        if isinstance(config, RequestRefusal):
            return Decision(config)
        records: list[MetadataRecord] = [
            TopicConfigRecord(topic.topic_id, name, config.get(name))
            for name in sorted(topic.config.keys() | config.keys())
            if topic.config.get(name) != config.get(name)
        ]
        if self._configs.min_in_sync(config) < self._configs.min_in_sync(topic.config):
            records += after_lower_min(topic)
        if self._configs.allows_unclean(config) and not self._configs.allows_unclean(topic.config):
            records += after_unclean_allowed(self._image, topic, self._rules_in(config))
        return Decision(None, records)

    def register_broker(
        self,
        broker_id: int,
        incarnation_id: UUID,
        *,
        host: str,
        port: int,
        rack: str | None = None,
        now_ms: int = 0,
        is_fenced: bool = False,
        directory_id: UUID = NO_ID,
        losses: Losses = NO_LOSSES,
    ) -> Decision[int]:
        """Registers a started broker; returns its epoch, which is the offset of its record. It
        leads its partitions under a new epoch, even after a clean stop: the present second, so that
        a log that is restored from a copy has no epoch of the log that it replaces. One that is
        `is_fenced` leads nothing until `unfence_broker`."""
        epoch = self._image.end_offset
        broker = BrokerRecord(
            broker_id, epoch, incarnation_id, host, port, rack, is_fenced, directory_id
        )
        changes = after_registration(
            self._image,
            broker_id,
            self._rules_of,
            is_fenced=is_fenced,
            losses=losses,
        )
        return Decision(epoch, [broker, *self._from_now(changes, now_ms)])

    def unfence_broker(
        self, broker_id: int, broker_epoch: int, *, now_ms: int = 0
    ) -> Decision[RequestRefusal | None]:
        """Lets a registered broker lead and be in sync, since it knows the metadata up to its
        registration."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch or broker.is_over:
            return Decision(RequestRefusal(ErrorCode.STALE_BROKER_EPOCH))
        if not broker.is_fenced:
            return Decision(None)
        changes = after_unfencing(self._image, broker_id, self._rules_of)
        fence = BrokerFenceRecord(broker_id, broker_epoch, False)
        return Decision(None, [fence, *self._from_now(changes, now_ms)])

    def _from_now(
        self, changes: Iterable[PartitionChangeRecord], now_ms: int
    ) -> list[PartitionChangeRecord]:
        floor = max(0, now_ms // 1_000 - FIRST_EPOCH_S)
        return [self._with_epoch_from(floor, each) for each in changes]

    def _with_epoch_from(self, floor: int, change: PartitionChangeRecord) -> PartitionChangeRecord:
        topic = self._image.topic_by_id(change.topic_id)
        assert topic is not None, "a partition that changes has a topic"
        if change.leader_epoch == topic.partitions[change.partition].leader_epoch:
            return change
        return replace(change, leader_epoch=max(change.leader_epoch, floor))

    def fence_broker(self, broker_id: int) -> Decision[None]:
        """Fences a broker that has sent nothing for too long, or is about to stop."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.is_fenced:
            return Decision(None)
        changes = after_loss(self._image, broker_id, self._rules_of)
        return Decision(None, [BrokerFenceRecord(broker_id, broker.broker_epoch, True), *changes])

    def remove_broker(self, broker_id: int) -> Decision[RequestRefusal | None]:
        """Removes a broker that has stopped for good, once nothing is expected of it."""
        image = self._image
        if broker_id not in image.brokers:
            return Decision(
                RequestRefusal(
                    ErrorCode.BROKER_ID_NOT_REGISTERED,
                    f"Broker ID {broker_id} is not currently registered",
                )
            )
        held = sum(broker_id in each.replicas for _, each in image.partitions)
        problem = None
        if image.is_alive(broker_id):
            problem = "is alive: stop it first"
        elif held:
            problem = f"has replicas of {held} partition(s): move them to other brokers first"
        elif len(image.brokers) <= 2:
            problem = "is one of two, and a cluster does not become a log with one broker again"
        if problem is not None:
            return Decision(
                RequestRefusal(ErrorCode.POLICY_VIOLATION, f"Broker {broker_id} {problem}")
            )
        return Decision(None, [BrokerRemovalRecord(broker_id)])

    def _rules_of(self, topic: Topic) -> ElectionRules:
        return self._rules_in(topic.config)

    def _rules_in(self, config: Mapping[str, str]) -> ElectionRules:
        return ElectionRules(
            self._configs.min_in_sync(config),
            self._configs.allows_unclean(config),
            self.unheard,
        )

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int
    ) -> Decision[ProducerIdBlock | RequestRefusal]:
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return Decision(RequestRefusal(ErrorCode.STALE_BROKER_EPOCH))
        block = ProducerIdBlock(self._image.next_producer_id, PRODUCER_IDS_PER_BLOCK)
        following = block.first + block.count
        return Decision(block, [ProducerIdsRecord(broker_id, broker_epoch, following)])

    def change_in_sync_sets(
        self,
        broker_id: int,
        broker_epoch: int,
        wanted: Mapping[tuple[UUID, int], InSyncProposal],
    ) -> Decision[dict[tuple[UUID, int], RequestRefusal | None] | RequestRefusal]:
        """Decides a leader's proposals for several partitions, each by itself."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return Decision(RequestRefusal(ErrorCode.STALE_BROKER_EPOCH))
        answer, records = dict[tuple[UUID, int], RequestRefusal | None](), list[MetadataRecord]()
        for (topic_id, index), proposal in wanted.items():
            decision = self.change_in_sync(broker_id, topic_id, index, proposal)
            answer[topic_id, index] = decision.answer
            records += decision.records
        return Decision(answer, records)

    def change_in_sync(
        self, broker_id: int, topic_id: UUID, partition: int, wanted: InSyncProposal
    ) -> Decision[RequestRefusal | None]:
        """Applies a leader's proposal; it counts only from the present leader, about the present
        set. One that leaves itself out resigns: whoever leads next has a new epoch."""
        topic = self._image.topic_by_id(topic_id)
        if topic is None or partition not in topic.partitions:
            return Decision(RequestRefusal(ErrorCode.UNKNOWN_TOPIC_ID))
        now = topic.partitions[partition]
        code = self._proposal_error(broker_id, now, wanted)
        if code is not None:
            return Decision(RequestRefusal(code))
        rules = self._rules_of(topic)
        resigns = broker_id not in wanted.in_sync
        change = change_in_sync(now, wanted.in_sync, self._image.alive, rules, is_new_epoch=resigns)
        return Decision(None, [] if change is None else [change])

    def _proposal_error(
        self, broker_id: int, now: PartitionRecord, wanted: InSyncProposal
    ) -> ErrorCode | None:
        epochs = (wanted.leader_epoch, wanted.partition_epoch)
        if epochs[0] > now.leader_epoch or epochs[1] > now.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # the leader knows more than this controller
        if wanted.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != now.leader:
            return ErrorCode.INVALID_REQUEST
        if wanted.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not wanted.in_sync <= set(now.replicas):
            return ErrorCode.INVALID_REQUEST
        if not all(self._is_eligible(each, now, wanted) for each in wanted.in_sync):
            return ErrorCode.INELIGIBLE_REPLICA
        return None

    def _is_eligible(self, replica: int, now: PartitionRecord, wanted: InSyncProposal) -> bool:
        """Whether the broker is alive, and has not restarted since the leader saw it catch up."""
        if not self._image.is_alive(replica):
            return False
        seen = wanted.broker_epochs.get(replica, UNKNOWN)
        if seen == UNKNOWN:  # the leader has not heard of it yet; whoever joins was heard
            return replica in now.in_sync
        return seen == self._image.brokers[replica].broker_epoch


def _creation(topic: Topic) -> list[MetadataRecord]:
    return [
        TopicRecord(topic.name, topic.topic_id, topic.has_fixed_replicas),
        *(TopicConfigRecord(topic.topic_id, *each) for each in topic.config.items()),
        *topic.partitions.values(),
    ]


def _too_many(count: int) -> RequestRefusal:
    return RequestRefusal(
        ErrorCode.POLICY_VIOLATION,
        f"{count} partitions in one request, where {PARTITIONS_PER_REQUEST_MAX} are allowed",
    )


def _unknown_topic(name: str) -> RequestRefusal:
    problem = name_problem(name)
    if problem is not None:
        return RequestRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return RequestRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")


def new_config(
    configs: TopicConfigs,
    wanted: Mapping[str, str | None],
    *,
    null_code: ErrorCode = ErrorCode.INVALID_CONFIG,
) -> dict[str, str] | RequestRefusal:
    """Returns the configuration of a new topic, or a replaced one; for a null Kafka has different
    codes in the two cases."""
    nulls = [name for name, value in wanted.items() if value is None]
    if nulls:
        return RequestRefusal(null_code, f"Null is not a value of {', '.join(nulls)}")
    config = {name: value for name, value in wanted.items() if value is not None}
    return _check(configs, config)


def changed_config(
    configs: TopicConfigs, current: Mapping[str, str], changes: Iterable[ConfigChange]
) -> dict[str, str] | RequestRefusal:
    """Returns `current` after the changes; `current` itself stays the same."""
    config = dict(current)
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            config.pop(name, None)
        elif value is None:
            return RequestRefusal(ErrorCode.INVALID_REQUEST, f"Null is not a value of {name}")
        elif operation is ConfigOperation.SET:
            config[name] = value
        else:
            merged = _merge(configs, config, name, operation, value)
            if isinstance(merged, RequestRefusal):
                return merged
            config[name] = merged
    return _check(configs, config)


def _merge(
    configs: TopicConfigs,
    config: Mapping[str, str],
    name: str,
    operation: ConfigOperation,
    value: str,
) -> str | RequestRefusal:
    try:
        key = key_of(name)
    except ConfigError as error:
        return RequestRefusal(ErrorCode.INVALID_CONFIG, error.problem)
    if key.type is not ConfigType.LIST:
        return RequestRefusal(
            ErrorCode.INVALID_CONFIG, f"Cannot {operation.name} to {name}, which is not a list"
        )
    parts = [each.strip() for each in configs.text(config, name).split(",") if each.strip()]
    given = [each.strip() for each in value.split(",")]
    if operation is ConfigOperation.APPEND:
        if parts and "" in given:
            return RequestRefusal(ErrorCode.INVALID_CONFIG, f"An empty part is added to {name}")
        return ",".join(dict.fromkeys([*parts, *given]))
    return ",".join(each for each in parts if each not in given)


def _check(configs: TopicConfigs, config: dict[str, str]) -> dict[str, str] | RequestRefusal:
    try:
        configs.check(config)
    except ConfigError as error:
        return RequestRefusal(ErrorCode.INVALID_CONFIG, error.problem)
    return config
