"""OffsetDelete (key 47), version 0: an administrator deletes offsets of a group.

Deliberately not done: nothing.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(OffsetDeleteRequest)
async def handle_offset_delete(
    broker: "Broker", request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    denied = denial(broker, context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    if denied is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=denied)
    refused = {
        topic.name: denial(broker, context, AclOperation.READ, ResourceType.TOPIC, topic.name)
        for topic in request.topics
    }
    known = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        if refused[topic.name] is ErrorCode.NONE
        for each in topic.partitions
        if broker.image.partition(topic.name, each.partition_index) is not None
    ]
    error, errors = await broker.groups.delete_offsets(request.group_id, known)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=refused[topic.name]
                    or errors.get(TopicPartition(topic.name, each.partition_index), unknown),
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(topics=tuple(topics))
