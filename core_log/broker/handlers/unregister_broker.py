"""UnregisterBroker (key 64), version 0: removes a broker that does not come back.

Kafka also removes one that is alive, that votes, or that has replicas. Here each of these is
refused with POLICY_VIOLATION.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(UnregisterBrokerRequest, is_forwarded=True)
async def handle_unregister_broker(
    broker: "Broker", request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    broker_id = request.broker_id
    if any(each.node_id == broker_id for each in broker.quorum.voters):
        return UnregisterBrokerResponse(
            error_code=ErrorCode.POLICY_VIOLATION,
            error_message=f"Broker {broker_id} votes in the metadata quorum: remove its vote first",
        )
    refused = await decide_and_commit(broker, lambda: broker.controller.remove_broker(broker_id))
    if refused is not None:
        return UnregisterBrokerResponse(error_code=refused.code, error_message=refused.message)
    return UnregisterBrokerResponse(error_message=None)
