"""SyncGroup (key 14), versions 0 to 5: the leader hands out assignments, everybody fetches theirs.

Version 3: static members. 5: the protocol, checked against the group's. Deliberately not done:
groups of the newer protocol (KIP-848).
"""

from typing import TYPE_CHECKING

from core_log.broker.dispatch import RequestContext, handles
from core_log.groups.membership import Syncing
from core_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from core_log.broker.broker import Broker


@handles(SyncGroupRequest)
async def handle_sync_group(
    broker: "Broker", request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse:
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
