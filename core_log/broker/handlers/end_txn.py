"""EndTxn (key 26), versions 0 to 5: a producer commits or aborts its transaction.

The answer is sent once the decision is on disk. Version 5: the answer has the epoch of the next
transaction (KIP-890). Deliberately not done: nothing.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.groups.transaction_coordinator import ProducerAnswer
from headwater.core_log.groups.transactions import VERSION_1, VERSION_2, ProducerIdentity
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

FENCED_FROM = 2
EPOCH_BUMP_FROM = 5


@handles(EndTxnRequest)
async def handle_end_txn(
    broker: "Broker", request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse:
    name = request.transactional_id
    denied = denial(broker, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    if denied is not ErrorCode.NONE:
        return EndTxnResponse(error_code=denied)
    try:
        answer = await broker.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=VERSION_2 if context.api_version >= EPOCH_BUMP_FROM else VERSION_1,
        )
    except HeadwaterError:
        answer = ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=error,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
    )
