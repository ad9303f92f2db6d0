"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page.

Deliberately not done: the last known eligible replicas, which this controller does not keep.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import NOT_ASKED, allows, authorized_operations
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

PARTITIONS_PER_PAGE_MAX = 2000


@handles(DescribeTopicPartitionsRequest)
async def handle_describe_topic_partitions(
    broker: "Broker", request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    asked = sorted({each.name for each in request.topics})
    hidden = {
        name
        for name in asked or broker.image.topics
        if not allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    }
    cursor, names = request.cursor, asked or sorted(broker.image.topics)
    if cursor is not None:
        is_nowhere = bool(asked) and cursor.topic_name not in asked
        if is_nowhere or cursor.partition_index < 0:
            return refused_response(asked, ErrorCode.INVALID_REQUEST)
        names = [name for name in names if name >= cursor.topic_name]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = [unknown(name, denied) for name in names if name in hidden] if asked else []
    names = [name for name in names if name not in hidden]
    room = min(max(request.response_partition_limit, 1), PARTITIONS_PER_PAGE_MAX)
    topics, following = [], None
    for name in names:
        if room == 0:
            following = Cursor(topic_name=name, partition_index=0)
            break
        is_first = cursor is not None and cursor.topic_name == name
        first = cursor.partition_index if cursor is not None and is_first else 0
        operations = authorized_operations(broker, context, ResourceType.TOPIC, name)
        topic = broker.image.topic(name)
        if topic is None:
            topics.append(unknown(name, broker.controller.unknown_topic_code(name), operations))
            continue
        topics.append(describe(broker.image, topic, range(first, first + room), operations))
        room -= len(topics[-1].partitions)
        if first + len(topics[-1].partitions) < len(topic.partitions):
            following = Cursor(topic_name=name, partition_index=first + len(topics[-1].partitions))
            break
    return DescribeTopicPartitionsResponse(topics=[*topics, *refused], next_cursor=following)


def describe(
    image: MetadataImage, topic: Topic, wanted: range, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in wanted:
        each = topic.partitions.get(index)
        if each is None:
            break
        has_leader = each.leader != NO_LEADER
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=each.replicas,
                isr_nodes=each.in_sync,
                eligible_leader_replicas=each.eligible,
                last_known_elr=(),
                offline_replicas=[broker for broker in each.replicas if not image.is_alive(broker)],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def refused_response(names: list[str], code: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[unknown(name, code) for name in names])


def unknown(
    name: str, code: ErrorCode, operations: int = NOT_ASKED
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=operations
    )
