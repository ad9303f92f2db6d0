"""The defaults that hold for all topics of a cluster, whatever the settings of its brokers say."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    Decision,
    RequestRefusal,
)
from headwater.core_log.replication.elections import after_lower_min
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import ClusterConfigRecord, MetadataRecord
from headwater.core_log.replication.topic_config import MIN_IN_SYNC, TopicConfigs

BROKERS_MIN = 3
TWO_DISKS = "2"
"""With three brokers this leaves room for one that is away."""
CAN_BE_SET_ONLY = RequestRefusal(
    ErrorCode.INVALID_CONFIG, f"The cluster's default of {MIN_IN_SYNC} can be set only"
)


class ClusterConfig:
    """Decides about min.insync.replicas, on which leaders and the controller must agree (KIP-966
    moves it from the brokers to the cluster, too). Pure, like the rest of the controller."""

    def __init__(
        self, image: MetadataImage, configs: TopicConfigs, replication_factor_max: int
    ) -> None:
        self._image, self._configs = image, configs
        self._replication_factor_max = replication_factor_max

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
            and len(each.assignment.origin) < self._replication_factor_max
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
