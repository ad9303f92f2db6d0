"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

Version 4: by state. 5: by type. Deliberately not done: groups of the newer protocols, so that every
type is "classic".
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

GROUP_TYPE = "classic"


@handles(ListGroupsRequest)
async def handle_list_groups(
    broker: "Broker", request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    if types and GROUP_TYPE not in types:
        return ListGroupsResponse()
    sees_all = allows(broker, context, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.rebalance.protocol_type or "",
            group_state=group.state.value,
            group_type=GROUP_TYPE,
        )
        for group in broker.groups.groups()
        if (not states or group.state.value.lower() in states)
        and (
            sees_all
            or allows(broker, context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        )
    ]
    return ListGroupsResponse(groups=tuple(groups))
