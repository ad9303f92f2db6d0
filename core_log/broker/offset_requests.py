"""Sorts the offsets that clients commit into those of existing and of unknown partitions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.groups.offsets import NO_TOPIC_ID, CommittedOffset
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


class PartitionOffset(Protocol):
    """One partition of OffsetCommit, or of TxnOffsetCommit."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class NamedTopic(NamedTuple):
    """A topic with the client's name or id for it, and its real name."""

    name: str
    topic_id: UUID
    error: ErrorCode


def find_topic(broker: "Broker", name: str, topic_id: UUID, *, by_id: bool) -> NamedTopic:
    """Returns the topic by its name, or by its id in the newest versions."""
    if by_id:
        topic = broker.image.topic_by_id(topic_id)
        error = ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_ID
        return NamedTopic(topic.name if topic else "", topic_id, error)
    known = broker.image.topic(name) is not None
    error = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return NamedTopic(name, NO_TOPIC_ID, error)


def find_allowed(
    broker: "Broker",
    context: RequestContext,
    operation: AclOperation,
    name: str,
    topic_id: UUID = NO_TOPIC_ID,
    *,
    by_id: bool = False,
) -> NamedTopic:
    """Returns the topic for a client that may do this with it; others do not learn whether a name
    exists."""
    topic = find_topic(broker, name, topic_id, by_id=by_id)
    if topic.error is ErrorCode.UNKNOWN_TOPIC_ID:
        return topic
    denied = denial(broker, context, operation, ResourceType.TOPIC, topic.name)
    return topic if denied is ErrorCode.NONE else topic._replace(error=denied)


def offsets_to_commit(
    broker: "Broker", topic: NamedTopic, partitions: Iterable[PartitionOffset], expires_ms: int = -1
) -> dict[TopicPartition, CommittedOffset]:
    """Returns the offsets for existing partitions."""
    now_ms = broker.clock.now_ms()
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=each.committed_metadata or "",
            committed_ms=now_ms,
            expires_ms=expires_ms,
            topic_id=topic.topic_id,
        )
        for each in partitions
        if broker.image.partition(topic.name, each.partition_index) is not None
    }
