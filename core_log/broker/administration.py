"""Decisions for handlers of administrative requests, and answers for refused ones."""

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.batch_validation import (
    InternalTopic,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompression,
)
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    CorruptLog,
    HeadwaterError,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotController,
    OffsetOutOfRange,
    OlderBrokers,
    OutOfOrderSequence,
    StorageFailed,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    Decision,
    Permit,
    RequestRefusal,
    permit_all,
)
from headwater.core_log.replication.metadata import Topic
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


Answer = TypeVar("Answer")


class ConfigResourceType(IntEnum):
    """Kinds of resources with a configuration, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


async def decide_and_commit(
    broker: "Broker",
    decide: Callable[[], Decision[Answer]],
    *,
    validate_only: bool = False,
    frees_room: bool = False,
) -> Answer | RequestRefusal:
    """Returns the answer once it is committed, or an error for all of it. A request that
    `frees_room` may use the reserved space of a full disk."""
    make_room = broker.store.spend_reserve if frees_room else None
    try:
        return await broker.metadata.change(
            decide, validate_only=validate_only, make_room=make_room
        )
    except HeadwaterError as error:
        return RequestRefusal(code_of(error), error.problem)


def permit_of(context: RequestContext, *, strict_from: int) -> Permit:
    """Returns what counts the partitions that a request creates or deletes. From this version on it
    refuses those that are over the client's quota."""
    use, is_strict = context.use, context.api_version >= strict_from
    if use is None:
        return permit_all
    return lambda count: use.permit(count, is_strict=is_strict)


def offline_refused(broker: "Broker", topic: Topic) -> RequestRefusal | None:
    """Returns the error for a topic some of whose partitions here are offline."""
    for index, record in sorted(topic.partitions.items()):
        if record.leader == broker.node_id and broker.find_led(topic.name, index) is None:
            reason = broker.why_unserved(topic.name, index)
            return RequestRefusal(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Topic '{topic.name}' exists, but its partition {index} is offline: {reason}",
            )
    return None


def broker_name_refused(broker: "Broker", name: str) -> RequestRefusal | None:
    """Returns the error unless the name is this broker's: it only knows itself. The empty name
    means all brokers."""
    if name in ("", str(broker.node_id)):
        return None
    if not name.isascii() or not name.isdigit():
        return RequestRefusal(ErrorCode.INVALID_REQUEST, "The name of a broker is its id, a number")
    return RequestRefusal(
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
    )


def unknown_broker(broker: "Broker", name: str) -> RequestRefusal | None:
    """Returns the error unless a broker of the cluster, or all of them, are named so."""
    if name == "" or name in map(str, broker.image.brokers):
        return None
    return RequestRefusal(ErrorCode.INVALID_REQUEST, f"Broker {name!r} is not registered")


def config_denied(
    broker: "Broker",
    context: RequestContext,
    operation: AclOperation,
    resource_type: int,
    name: str,
) -> RequestRefusal | None:
    """Returns the error of who may not do this with the resource's configuration."""
    if resource_type == ConfigResourceType.TOPIC:
        code = denial(broker, context, operation, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        code = denial(broker, context, operation, ResourceType.GROUP, name)
    else:
        code = denial(broker, context, operation, ResourceType.CLUSTER)
    return None if code is ErrorCode.NONE else RequestRefusal(code, code.meaning)


def unknown_resource(resource_type: int) -> RequestRefusal:
    return RequestRefusal(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no configuration"
    )


CODES: dict[type[HeadwaterError], ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidRecord: ErrorCode.INVALID_RECORD,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    BatchRejected: ErrorCode.INVALID_RECORD,
    NotController: ErrorCode.NOT_CONTROLLER,
    OlderBrokers: ErrorCode.UNSUPPORTED_VERSION,
    StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
}


def code_of(error: HeadwaterError) -> ErrorCode:
    """Returns the code of the nearest ancestor in the table; otherwise the code of a server
    failure."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return ErrorCode.UNKNOWN_SERVER_ERROR
