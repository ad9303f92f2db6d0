"""ListOffsets (key 2), versions 1 to 11: offsets by name (earliest, latest, ...) or by time.

"Latest" covers everything written before the request: it waits until that is on disk, so that a
client that appended with acks=1 finds it. Two private negative timestamps tell how far compaction
has gone; see `protocol/messages/list_offsets.py`. Nobody sees uncommitted records, whereas Kafka
believes every client that claims to be a replica. A leader that may not know all that its
predecessor has committed answers OFFSET_NOT_AVAILABLE (KIP-207). Deliberately not done: tiered
storage, whose offsets are answered as unknown, as Kafka does without it.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.authorization import allows, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.partition import Partition, Reach, bring_to_disk, check_epoch
from headwater.core_log.broker.replicas import find_unproved
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.list_offsets import (
    CLEANED_TO,
    DELETES_DROPPED_TO,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.core_log.replication.leader import Leader
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
UNKNOWN = -1
LEADER_EPOCH_FROM, NOT_AVAILABLE_FROM = 4, 5
KNOWN_AT_ONCE = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


class PartitionOffsetAnswer(NamedTuple):
    offset: int
    timestamp: int = UNKNOWN
    leader_epoch: int = UNKNOWN


@handles(ListOffsetsRequest)
async def handle_list_offsets(
    broker: "Broker", request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    shown = [
        topic
        for topic in request.topics
        if allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]
    asked = [
        broker.find_led(topic.name, each.partition_index)
        for topic in shown
        for each in topic.partitions
        if each.timestamp == LATEST
    ]
    await bring_to_disk(each for each in asked if each is not None and knows_latest(each))
    unproved = await find_unproved(
        broker,
        [
            TopicPartition(topic.name, each.partition_index)
            for topic in shown
            for each in topic.partitions
            if each.timestamp not in KNOWN_AT_ONCE
            and (led := broker.find_led(topic.name, each.partition_index)) is not None
            and knows_latest(led)
        ],
    )
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                answer(broker, topic.name, each, request, context, unproved)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=tuple(topics))


def answer(
    broker: "Broker",
    topic: str,
    wanted: ListOffsetsPartition,
    request: ListOffsetsRequest,
    context: RequestContext,
    unproved: Collection[TopicPartition] = (),
) -> ListOffsetsPartitionResponse:
    index, version = wanted.partition_index, context.api_version
    code = denial(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    if code is not ErrorCode.NONE:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    partition = broker.find_led(topic, index)
    if partition is None:
        code = broker.why_not_led(topic, index)
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    code = check_epoch(partition, wanted.current_leader_epoch)
    if wanted.timestamp < 0 and version < SINCE.get(wanted.timestamp, 0):
        code = ErrorCode.UNSUPPORTED_VERSION
    if code is ErrorCode.NONE and wanted.timestamp not in KNOWN_AT_ONCE:
        is_known = knows_latest(partition) and (topic, index) not in unproved
        code = ErrorCode.NONE if is_known else not_available(version)
    if code is not ErrorCode.NONE:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    try:
        found = find(partition, wanted.timestamp, reach_of(request))
    except HeadwaterError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(error))
    except OSError:
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
    if found is None:
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION
        )
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= LEADER_EPOCH_FROM else UNKNOWN,
    )


def not_available(version: int) -> ErrorCode:
    is_new = version >= NOT_AVAILABLE_FROM
    return ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE


def knows_latest(partition: Partition) -> bool:
    leader = partition.leader
    return not isinstance(leader, Leader) or leader.knows_latest


def reach_of(request: ListOffsetsRequest) -> Reach:
    """Returns how far the client may read; one that claims to be a replica is like any other."""
    if request.replica_id >= 0:
        return Reach.COMMITTED
    return Reach.STABLE if request.isolation_level == READ_COMMITTED else Reach.COMMITTED


def find(partition: Partition, timestamp: int, reach: Reach) -> PartitionOffsetAnswer | None:
    """Returns the offset; None for a negative timestamp without a known meaning."""
    log, limit = partition.log, partition.limit(reach)
    if timestamp >= 0:
        by_time = log.offset_for_timestamp(timestamp, below=limit)
        return (
            PartitionOffsetAnswer(UNKNOWN) if by_time is None else PartitionOffsetAnswer(*by_time)
        )
    if timestamp == LATEST:
        return PartitionOffsetAnswer(limit, UNKNOWN, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return PartitionOffsetAnswer(
            log.start_offset, UNKNOWN, log.epochs.epoch_at(log.start_offset)
        )
    if timestamp == MAX_TIMESTAMP:
        newest = log.max_timestamp(below=limit)
        return PartitionOffsetAnswer(UNKNOWN) if newest is None else PartitionOffsetAnswer(*newest)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return PartitionOffsetAnswer(UNKNOWN)
    if timestamp == CLEANED_TO:
        return PartitionOffsetAnswer(log.cleaned_to, CLEANED_TO, partition.leader_epoch)
    if timestamp == DELETES_DROPPED_TO:
        return PartitionOffsetAnswer(log.deletes_dropped_to, DELETES_DROPPED_TO)
    return None
