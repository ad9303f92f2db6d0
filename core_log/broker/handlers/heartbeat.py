"""Heartbeat (key 12), versions 0 to 4: a member says that it is alive, and learns of rebalances.

Version 3: static members. Deliberately not done: groups of the newer protocol (KIP-848).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(HeartbeatRequest)
async def handle_heartbeat(
    broker: "Broker", request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse:
    code = denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if code is not ErrorCode.NONE:
        return HeartbeatResponse(error_code=code)
    error = broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        request.generation_id,
        instance_id=request.group_instance_id,
    )
    return HeartbeatResponse(error_code=error)
