"""LeaveGroup (key 13), versions 0 to 5: members leave, or an operator removes them.

Version 3: several members, also by their instance id (KIP-345). Deliberately not done: groups of
the newer protocol (KIP-848), the reason given (it is not kept).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

SEVERAL_MEMBERS_FROM = 3


@handles(LeaveGroupRequest)
async def handle_leave_group(
    broker: "Broker", request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    code = denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if code is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=code)
    leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    if context.api_version >= SEVERAL_MEMBERS_FROM:
        leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    error, errors = await broker.groups.leave(request.group_id, leaving)
    if context.api_version < SEVERAL_MEMBERS_FROM:
        return LeaveGroupResponse(error_code=error or next(iter(errors), ErrorCode.NONE))
    members = [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=each)
        for (member_id, instance_id), each in zip(leaving, errors, strict=False)
    ]
    return LeaveGroupResponse(error_code=error, members=tuple(members))
