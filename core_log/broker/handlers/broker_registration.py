"""BrokerRegistration (key 62), versions 0 to 4: a started broker registers with this controller.

It is fenced until its heartbeat shows that it knows the metadata up to its registration.
Deliberately not done: ZooKeeper migration, more than one log directory.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.inter_broker_messages import (
    BrokerRegistrationResponse,
    MemberRegistrationRequest,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(MemberRegistrationRequest, name="BrokerRegistration")
async def handle_broker_registration(
    broker: "Broker", request: MemberRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    try:
        return await broker.active_controller.register(request)
    except HeadwaterError as error:
        return BrokerRegistrationResponse(error_code=code_of(error))
