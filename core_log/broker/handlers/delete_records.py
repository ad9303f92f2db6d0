"""DeleteRecords (key 21), versions 0 to 2: moves up the start of partitions.

It covers everything written before the request: it waits until that is on disk, so that a client
that appended with acks=1 can delete it. It is answered once every replica that may be elected has
followed, and so times out while fewer than min.insync.replicas are in sync. Refused for
internal topics, and for topics that are only compacted.
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.authorization import allows, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.partition import bring_to_disk
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

TO_HIGH_WATERMARK = -1
NO_WATERMARK = -1


@handles(DeleteRecordsRequest)
async def handle_delete_records(
    broker: "Broker", request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    until_s = asyncio.get_running_loop().time() + request.timeout_ms / 1000
    await bring_to_disk(
        broker.find_led(topic.name, each.partition_index)
        for topic in request.topics
        if allows(broker, context, AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for each in topic.partitions
    )
    answers = [
        [await answer(broker, context, topic.name, each, until_s) for each in topic.partitions]
        for topic in request.topics
    ]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=partitions)
            for topic, partitions in zip(request.topics, answers, strict=True)
        ]
    )


async def answer(
    broker: "Broker",
    context: RequestContext,
    topic: str,
    wanted: DeleteRecordsPartition,
    until_s: float,
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    code = denial(broker, context, AclOperation.DELETE, ResourceType.TOPIC, topic)
    try:
        async with asyncio.timeout_at(until_s):
            outcome = code or await delete(broker, topic, index, wanted.offset)
    except TimeoutError:
        outcome = ErrorCode.REQUEST_TIMED_OUT
    except HeadwaterError as error:
        outcome = code_of(error)
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_WATERMARK, error_code=outcome
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)


async def delete(broker: "Broker", topic: str, index: int, offset: int) -> int | ErrorCode:
    """Returns the partition's new low watermark, or the error."""
    partition = broker.find_led(topic, index)
    if partition is None:
        return broker.why_not_led(topic, index)
    if broker.is_internal(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if broker.configs.is_compacted_only(broker.image.topic_config(topic)):
        return ErrorCode.POLICY_VIOLATION
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if partition.high_watermark < offset <= partition.log.end_offset:
        return ErrorCode.REQUEST_TIMED_OUT  # the disk is slow: the records may still become durable
    if not 0 <= offset <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    await partition.delete_records_before(offset)
    refusal = partition.refusal
    return partition.low_watermark if refusal is ErrorCode.NONE else refusal
