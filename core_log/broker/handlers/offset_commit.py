"""OffsetCommit (key 8), versions 2 to 10: a consumer group stores how far it has read.

Versions 2 to 4: the client sets how long the offset is kept. 7: static members. 10: topics by id.
The answer is sent once the offsets are on disk. Deliberately not done: groups of the newer protocol
(KIP-848).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.offset_requests import NamedTopic, find_allowed, offsets_to_commit
from headwater.core_log.foundation.units import LARGEST
from headwater.core_log.groups.group_coordinator import OffsetCommitter
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

UNKNOWN_GROUP_FROM = 9
TOPIC_IDS_FROM = 10


@handles(OffsetCommitRequest)
async def handle_offset_commit(
    broker: "Broker", request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    by_id = context.api_version >= TOPIC_IDS_FROM
    topics = [
        find_allowed(broker, context, AclOperation.READ, each.name, each.topic_id, by_id=by_id)
        for each in request.topics
    ]
    denied = denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if denied is not ErrorCode.NONE:
        topics = [topic._replace(error=denied) for topic in topics]
    expires_ms = -1
    if request.retention_time_ms >= 0:
        expires_ms = min(broker.clock.now_ms() + request.retention_time_ms, LARGEST)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic, wanted in zip(topics, request.topics, strict=True):
        if topic.error is ErrorCode.NONE:
            offsets |= offsets_to_commit(broker, topic, wanted.partitions, expires_ms)
    by = OffsetCommitter(
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    errors = dict[TopicPartition, ErrorCode]()
    if denied is ErrorCode.NONE and (offsets or not request.topics):
        errors = await broker.groups.commit_offsets(request.group_id, offsets, by=by)
    if context.api_version < UNKNOWN_GROUP_FROM:
        errors = {at: _in_older_words(error) for at, error in errors.items()}
    answers = [
        _answer(wanted, topic, errors) for topic, wanted in zip(topics, request.topics, strict=True)
    ]
    return OffsetCommitResponse(topics=tuple(answers))


def _answer(
    wanted: OffsetCommitRequestTopic, topic: NamedTopic, errors: dict[TopicPartition, ErrorCode]
) -> OffsetCommitResponseTopic:
    otherwise = topic.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = [
        OffsetCommitResponsePartition(
            partition_index=each.partition_index,
            error_code=errors.get(TopicPartition(topic.name, each.partition_index), otherwise),
        )
        for each in wanted.partitions
    ]
    return OffsetCommitResponseTopic(
        name=wanted.name, topic_id=wanted.topic_id, partitions=tuple(partitions)
    )


def _in_older_words(error: ErrorCode) -> ErrorCode:
    """Returns an older error code: older clients know no code for an unknown group."""
    is_unknown = error is ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION if is_unknown else error
