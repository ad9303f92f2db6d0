"""AddOffsetsToTxn (key 25), versions 0 to 4: a transaction announces the group whose offsets it
commits.

Newer clients (transaction.version 2) do not send it. Deliberately not done: nothing.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

FENCED_FROM = 2


@handles(AddOffsetsToTxnRequest)
async def handle_add_offsets_to_txn(
    broker: "Broker", request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    denied = denial(
        broker,
        context,
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        request.transactional_id,
    ) or denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if denied is not ErrorCode.NONE:
        return AddOffsetsToTxnResponse(error_code=denied)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    error = await broker.transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        [partition],
    )
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE:
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return AddOffsetsToTxnResponse(error_code=error)
