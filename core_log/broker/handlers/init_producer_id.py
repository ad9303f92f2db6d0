"""InitProducerId (key 22), versions 0 to 6: a producer gets its id and epoch, and fences its
predecessor.

Version 3: a producer that sends its id continues with a new epoch (KIP-360). Deliberately not done:
two-phase commit (version 6, KIP-939), which Kafka also refuses unless it is enabled.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.groups.transaction_coordinator import NO_PRODUCER, ProducerAnswer
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

FENCED_FROM = 4


@handles(InitProducerIdRequest)
async def handle_init_producer_id(
    broker: "Broker", request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    answer = await init(broker, request, context)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
    )


def may_write(broker: "Broker", context: RequestContext, transactional_id: str | None) -> ErrorCode:
    """Returns the error of who may neither use the transactional id nor, without one, write to any
    topic."""
    if transactional_id is not None:
        kind = ResourceType.TRANSACTIONAL_ID
        return denial(broker, context, AclOperation.WRITE, kind, transactional_id)
    authorizer = broker.authorizer
    if authorizer is not None and authorizer.allows_on_any(
        context.principal, context.client_host, AclOperation.WRITE, ResourceType.TOPIC
    ):
        return ErrorCode.NONE
    return denial(broker, context, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


async def init(
    broker: "Broker", request: InitProducerIdRequest, context: RequestContext
) -> ProducerAnswer:
    denied = may_write(broker, context, request.transactional_id)
    if denied is not ErrorCode.NONE:
        return ProducerAnswer(denied)
    if request.enable2_pc:
        return ProducerAnswer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return ProducerAnswer(ErrorCode.UNSUPPORTED_VERSION)
    named = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (named.producer_id < 0) != (named.epoch < 0):
        return ProducerAnswer(ErrorCode.INVALID_REQUEST)
    try:
        return await broker.transactions.init_producer_id(
            request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=None if named == NO_PRODUCER else named,
        )
    except HeadwaterError:
        return ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
