"""JoinGroup (key 11), versions 0 to 9: a member joins the next generation of its group.

Version 1: the rebalance timeout; before, it is the session's. 4: a new member gets its id first
(KIP-394). 5: static members (KIP-345). 9: a returning leader can keep the assignment (KIP-814).
Deliberately not done: groups of the newer protocol (KIP-848), the client's reason.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups.membership import JoinAnswer, Joining, JoinProtocol
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_FIRST_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


@handles(JoinGroupRequest)
async def handle_join_group(
    broker: "Broker", request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse:
    code = denial(broker, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if code is not ErrorCode.NONE:
        return JoinGroupResponse(error_code=code)
    has_rebalance_timeout = context.api_version >= REBALANCE_TIMEOUT_FROM
    joining = Joining(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # in Java's format of addresses, which tools show
        protocol_type=request.protocol_type,
        protocols=tuple(JoinProtocol(each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if has_rebalance_timeout
        else request.session_timeout_ms,
        takes_member_id_first=context.api_version >= MEMBER_ID_FIRST_FROM,
        may_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_FROM,
    )
    answer = await broker.groups.join(request.group_id, joining)
    return respond(answer, context.api_version)


def respond(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol_name is None else answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
