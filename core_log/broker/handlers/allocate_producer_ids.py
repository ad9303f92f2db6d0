"""AllocateProducerIds (key 67), version 0: producer ids for a broker to give to its clients."""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(AllocateProducerIdsRequest)
async def handle_allocate_producer_ids(
    broker: "Broker", request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    block = await decide_and_commit(
        broker,
        lambda: broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch),
    )
    if isinstance(block, RequestRefusal):
        return AllocateProducerIdsResponse(error_code=block.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.count)
