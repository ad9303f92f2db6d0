"""The settings that brokers take while they run: the defaults of all topics, and throttle rates."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.replica_placement import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.assignments import REPLICATION_FACTOR_MAX
from headwater.core_log.replication.config_keys import LONG_MAX, ConfigKey, ConfigType, at_least
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    Decision,
    RequestRefusal,
)
from headwater.core_log.replication.elections import after_lower_min
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    BrokerConfigRecord,
    ClusterConfigRecord,
    MetadataRecord,
)
from headwater.core_log.replication.topic_config import MIN_IN_SYNC, TopicConfigs

BROKERS_MIN = 3
TWO_DISKS = "2"
"""With three brokers this leaves room for one that is away."""
CAN_BE_SET_ONLY = RequestRefusal(
    ErrorCode.INVALID_CONFIG, f"The cluster's default of {MIN_IN_SYNC} can be set only"
)
BROKER_KEYS: Mapping[str, ConfigKey] = {
    name: ConfigKey(
        name,
        ConfigType.LONG,
        str(LONG_MAX),
        name,
        f"Bytes per second that {what} of {replicas} together, unless they are in sync.",
        at_least(0),
    )
    for name, what, replicas in (
        (FOLLOWER_RATE, "this broker fetches for the replicas", FOLLOWER_REPLICAS),
        (LEADER_RATE, "this broker sends from the replicas", LEADER_REPLICAS),
    )
}
READ_AT_START = RequestRefusal(
    ErrorCode.INVALID_REQUEST, "Settings of a broker are read when it starts"
)
OF_THE_CLUSTER = RequestRefusal(
    ErrorCode.INVALID_CONFIG, f"{MIN_IN_SYNC} is set for the cluster, not for one broker"
)
Outcome = Decision[RequestRefusal | None]


class ClusterConfig:
    """Decides about min.insync.replicas, on which leaders and the controller must agree (KIP-966
    moves it from the brokers to the cluster, too). Pure, like the rest of the controller."""

    def __init__(self, image: MetadataImage, configs: TopicConfigs) -> None:
        self._image, self._configs = image, configs

    def ask_for_two_disks(self) -> Decision[bool]:
        """Sets min.insync.replicas once three brokers are alive, or the value in this controller's
        own settings. It waits as long as a partition that is written would refuse acks=all, or has
        still to get the replica without which it would after the next loss of a broker."""
        image = self._image
        if MIN_IN_SYNC in image.cluster_config or len(image.alive) < BROKERS_MIN:
            return Decision(False)
        value = self._configs.defaults.get(MIN_IN_SYNC, TWO_DISKS)
        for topic in self._topics_without_own_value:
            if _would_refuse(topic, int(value)) or self._has_to_grow(topic, int(value)):
                return Decision(False)
        records = self._set(value)
        return Decision(True, records) if image.may_have(records) else Decision(False)

    def alter(self, changes: Iterable[ConfigChange]) -> Decision[RequestRefusal | None]:
        """Changes the defaults of the cluster."""
        records: list[MetadataRecord] = []
        for change in changes:
            refused = self.refuse(change)
            if refused is not None:
                return Decision(refused)
            if change.operation is ConfigOperation.SET:
                records += self._set(change.value or "")
        return Decision(None, records)

    def refuse(self, change: ConfigChange) -> RequestRefusal | None:
        """Returns the error of a change, with Kafka's codes: invalid values of settings of brokers
        are invalid requests. Other settings can only be removed, since there are none."""
        name, operation, value = change
        if name != MIN_IN_SYNC:
            problem = f"{name} has no default of the cluster here: set it on each topic"
            is_removed = operation is ConfigOperation.DELETE
            return None if is_removed else RequestRefusal(ErrorCode.INVALID_REQUEST, problem)
        if operation is ConfigOperation.DELETE:
            return CAN_BE_SET_ONLY
        if value is None:
            return RequestRefusal(ErrorCode.INVALID_REQUEST, f"Null is not a value of {name}")
        if operation is not ConfigOperation.SET:
            return CAN_BE_SET_ONLY
        try:
            self._configs.check({name: value})
        except ConfigError as error:
            return RequestRefusal(ErrorCode.INVALID_REQUEST, error.problem)
        return None

    def replace(self, wanted: Mapping[str, str | None]) -> Decision[RequestRefusal | None]:
        """Sets all defaults of the cluster at once; none can be left out that has been set."""
        decision = self.alter(
            ConfigChange(name, ConfigOperation.SET, value) for name, value in wanted.items()
        )
        if decision.answer is None and self._image.cluster_config.keys() - wanted.keys():
            return Decision(CAN_BE_SET_ONLY)
        return decision

    def _set(self, value: str) -> list[MetadataRecord]:
        is_lower = int(value) < self._configs.min_in_sync({})
        topics = self._topics_without_own_value if is_lower else ()
        changes = chain.from_iterable(map(after_lower_min, topics))
        return [ClusterConfigRecord(MIN_IN_SYNC, value), *changes]

    def _has_to_grow(self, topic: Topic, min_in_sync: int) -> bool:
        """Whether it would need all of its replicas although it gets more. One replica alone is
        enough until there are others."""
        return not topic.has_fixed_replicas and any(
            each.leader != NO_LEADER
            and 1 < len(each.assignment.origin) <= min_in_sync
            and len(each.assignment.origin) < REPLICATION_FACTOR_MAX
            for each in topic.partitions.values()
        )

    @property
    def _topics_without_own_value(self) -> Iterator[Topic]:
        return (each for each in self._image.topics.values() if MIN_IN_SYNC not in each.config)


def _would_refuse(topic: Topic, min_in_sync: int) -> bool:
    return any(
        each.leader != NO_LEADER and len(each.in_sync) < each.assignment.enough(min_in_sync)
        for each in topic.partitions.values()
    )


class BrokerConfigs:
    """Decides about settings of one broker, or of all (None), whose other defaults are the
    cluster's. Pure, like the rest of the controller."""

    def __init__(self, image: MetadataImage, cluster_config: ClusterConfig) -> None:
        self._image, self._cluster_config = image, cluster_config

    def alter(self, broker_id: int | None, changes: Iterable[ConfigChange]) -> Outcome:
        """Changes some settings. Others of a broker can only be removed, since it has none."""
        records, others = list[MetadataRecord](), list[ConfigChange]()
        for change in changes:
            key = BROKER_KEYS.get(change.name)
            if key is None:
                others.append(change)
                continue
            refused = _refuse(key, change)
            if refused is not None:
                return Decision(refused)
            is_set = change.operation is ConfigOperation.SET
            value = key.normal(change.value or "") if is_set else None
            if self._image.broker_config.get(broker_id, {}).get(key.name) != value:
                records.append(BrokerConfigRecord(broker_id, key.name, value))
        if broker_id is not None:
            refused = self._refuse_of_one(others)
            return Decision(None, records) if refused is None else Decision(refused)
        of_cluster = self._cluster_config.alter(others)
        if of_cluster.answer is not None:
            return of_cluster
        return Decision(None, [*records, *of_cluster.records])

    def replace(self, broker_id: int | None, wanted: Mapping[str, str | None]) -> Outcome:
        """Sets all settings at once; those that are not named are removed."""
        own = {name: value for name, value in wanted.items() if name in BROKER_KEYS}
        others = {name: value for name, value in wanted.items() if name not in BROKER_KEYS}
        if broker_id is not None and others:
            given = [ConfigChange(each, ConfigOperation.SET, to) for each, to in others.items()]
            return Decision(self._refuse_of_one(given))
        removed = self._image.broker_config.get(broker_id, {}).keys() - own.keys()
        changes = [ConfigChange(each, ConfigOperation.DELETE, None) for each in sorted(removed)]
        changes += [ConfigChange(each, ConfigOperation.SET, value) for each, value in own.items()]
        decision = self.alter(broker_id, changes)
        if broker_id is not None or decision.answer is not None:
            return decision
        of_cluster = self._cluster_config.replace(others)
        if of_cluster.answer is not None:
            return of_cluster
        return Decision(None, [*decision.records, *of_cluster.records])

    def _refuse_of_one(self, others: Iterable[ConfigChange]) -> RequestRefusal | None:
        """Returns the error of settings that one broker does not take."""
        for change in others:
            if change.name == MIN_IN_SYNC:
                return self._cluster_config.refuse(change) or OF_THE_CLUSTER
            if change.operation is not ConfigOperation.DELETE:
                return READ_AT_START
        return None


def _refuse(key: ConfigKey, change: ConfigChange) -> RequestRefusal | None:
    """Returns the error of a change, with Kafka's codes."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.value is None:
        return RequestRefusal(ErrorCode.INVALID_REQUEST, f"Null is not a value of {key.name}")
    if change.operation is not ConfigOperation.SET:
        return RequestRefusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot {change.operation.name} to {key.name}, which is not a list",
        )
    try:
        key.parse(change.value)
    except ConfigError as error:
        return RequestRefusal(ErrorCode.INVALID_REQUEST, error.problem)
    return None
