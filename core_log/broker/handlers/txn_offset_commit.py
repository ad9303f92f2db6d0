"""TxnOffsetCommit (key 28), versions 0 to 5: a transaction commits offsets of a group.

The answer is sent after the write, in a cluster after its commit; the offsets are valid from the
transaction's commit on. Version 3: the group checks that its member is current. 5: the group joins
the transaction by this request alone (KIP-890). Deliberately not done: nothing.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.offset_requests import find_allowed, offsets_to_commit
from headwater.core_log.broker.transaction_verification import UnmarkedSince
from headwater.core_log.groups.group_coordinator import OffsetCommitter
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.model.log import ProducerStamp, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ABORTABLE_FROM = 4
IMPLICIT_ADD_FROM = 5

OffsetsToCommit = dict[TopicPartition, CommittedOffset]


@handles(TxnOffsetCommitRequest)
async def handle_txn_offset_commit(
    broker: "Broker", request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    offsets: OffsetsToCommit = {}
    denied = denial(
        broker,
        context,
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        request.transactional_id,
    ) or denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    refused = dict[str, ErrorCode]()
    for each in request.topics:
        topic = find_allowed(broker, context, AclOperation.READ, each.name)
        refused[each.name] = denied or topic.error
        if refused[each.name] is ErrorCode.NONE:
            offsets |= offsets_to_commit(broker, topic, each.partitions)
    errors = await commit(broker, request, offsets, context.api_version) if offsets else {}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=refused[topic.name]
                    or errors.get(TopicPartition(topic.name, each.partition_index), unknown),
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=tuple(topics))


async def commit(
    broker: "Broker", request: TxnOffsetCommitRequest, offsets: OffsetsToCommit, version: int
) -> dict[TopicPartition, ErrorCode]:
    index = broker.groups.partition_of(request.group_id)
    led = broker.find_led(OFFSETS_TOPIC, index)
    since = UnmarkedSince.now(led, request.producer_id) if led is not None else None
    error = await verify(broker, request, version)
    if error is ErrorCode.NONE and since is not None:
        holds = since.holds(broker.find_led(OFFSETS_TOPIC, index))
        error = ErrorCode.NONE if holds else ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is not ErrorCode.NONE:
        return dict.fromkeys(offsets, error)
    return await broker.groups.commit_offsets(
        request.group_id,
        offsets,
        by=OffsetCommitter(request.member_id, request.generation_id, request.group_instance_id),
        producer=ProducerStamp(request.producer_id, request.producer_epoch),
    )


async def verify(broker: "Broker", request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
    """Returns the error unless the group's partition belongs to the transaction, or may join it."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    error = broker.groups.check(request.group_id)
    if error is not ErrorCode.NONE:
        return error
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    verdicts = await broker.verifier.verify_or_add(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        may_add=version >= IMPLICIT_ADD_FROM,
    )
    error = verdicts[partition]
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        # librdkafka and aiokafka abort after the first error only; the other one stops them.
        must_abort = broker.transactions.must_abort(request.transactional_id)
        return ErrorCode.GROUP_AUTHORIZATION_FAILED if must_abort else ErrorCode.INVALID_TXN_STATE
    return error
