"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where an earlier leader's records end here.

Consumers send it after a leader change to check whether the records they read are still in the log.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.partition import check_epoch
from headwater.core_log.broker.replicas import find_unproved
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(OffsetForLeaderEpochRequest)
async def handle_offset_for_leader_epoch(
    broker: "Broker", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    sees_all = allows(broker, context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    unproved = await find_unproved(
        broker,
        [
            TopicPartition(topic.topic, each.partition)
            for topic in request.topics
            if sees_all
            or allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            for each in topic.partitions
        ],
    )
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                answer(broker, context, topic.topic, each, unproved) for each in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def answer(
    broker: "Broker",
    context: RequestContext,
    topic: str,
    wanted: OffsetForLeaderPartition,
    unproved: Collection[TopicPartition],
) -> EpochEndOffset:
    index = wanted.partition
    if not allows(broker, context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        code = denial(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        if code is not ErrorCode.NONE:
            return EpochEndOffset(error_code=code, partition=index)
    partition = broker.find_led(topic, index)
    if partition is None:
        return EpochEndOffset(error_code=broker.why_not_led(topic, index), partition=index)
    code = check_epoch(partition, wanted.current_leader_epoch)
    if code is ErrorCode.NONE and (topic, index) in unproved:
        code = ErrorCode.OFFSET_NOT_AVAILABLE
    if code is not ErrorCode.NONE:
        return EpochEndOffset(error_code=code, partition=index)
    epoch, end_offset = partition.log.epochs.end_offset_for(wanted.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=index, leader_epoch=epoch, end_offset=end_offset
    )
