"""The settings that brokers take while they run: the rates of throttled replicas."""

from collections.abc import Iterable, Mapping

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.replication_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.cluster_config import ClusterConfig
from headwater.core_log.replication.config_keys import LONG_MAX, ConfigKey, ConfigType, at_least
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    Decision,
    RequestRefusal,
)
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import BrokerConfigRecord, MetadataRecord
from headwater.core_log.replication.topic_config import MIN_IN_SYNC

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
