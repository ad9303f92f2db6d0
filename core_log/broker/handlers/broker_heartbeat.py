"""BrokerHeartbeat (key 63), versions 0 to 2: a registered broker says that it lives, or that it
stops.

Deliberately not done: offline and cordoned log directories.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(BrokerHeartbeatRequest)
async def handle_broker_heartbeat(
    broker: "Broker", request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    try:
        return await broker.active_controller.heartbeat(request, context.peer)
    except HeadwaterError as error:
        return BrokerHeartbeatResponse(error_code=code_of(error))
