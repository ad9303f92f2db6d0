"""DeleteGroups (key 42), versions 0 to 2: an administrator deletes groups without members.

Deliberately not done: nothing.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DeleteGroupsRequest)
async def handle_delete_groups(
    broker: "Broker", request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    results = [
        DeletableGroupResult(
            group_id=group_id,
            error_code=denial(broker, context, AclOperation.DELETE, ResourceType.GROUP, group_id)
            or await broker.groups.delete_group(group_id),
        )
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return DeleteGroupsResponse(results=tuple(results))
