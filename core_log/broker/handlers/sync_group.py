"""SyncGroup (key 14), versions 0 to 5: the leader sends assignments, and every member gets its own.

Version 3: static members. 5: the protocol must be named, and be the group's (KIP-559). Deliberately
not done: groups of the newer protocol (KIP-848).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups.membership import Syncing
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

PROTOCOL_NAMED_FROM = 5


@handles(SyncGroupRequest)
async def handle_sync_group(
    broker: "Broker", request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse:
    code = denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if code is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=code)
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_NAMED_FROM and not is_named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    syncing = Syncing(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    answer = await broker.groups.sync(request.group_id, syncing)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
