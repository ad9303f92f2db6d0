"""DescribeGroups (key 15), versions 0 to 6: the state and the members of groups.

Version 3: the operations that the client may do. 4: instance ids. 6: an unknown group is an error;
before, its state is dead.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import NOT_ASKED, authorized_operations, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups.group import Group
from headwater.core_log.groups.membership import GroupState
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

UNKNOWN_GROUP_FROM = 6


@handles(DescribeGroupsRequest)
async def handle_describe_groups(
    broker: "Broker", request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    groups = [find(broker, context, group_id, request) for group_id in request.groups]
    return DescribeGroupsResponse(groups=tuple(groups))


def find(
    broker: "Broker", context: RequestContext, group_id: str, request: DescribeGroupsRequest
) -> DescribedGroup:
    version = context.api_version
    error = denial(broker, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    error = error or broker.groups.check(group_id)  # also without a name, as in Kafka
    if error is not ErrorCode.NONE:
        return DescribedGroup(group_id=group_id, error_code=error)
    group = broker.groups.find(group_id)
    if group is not None:
        operations = NOT_ASKED
        if request.include_authorized_operations:
            operations = authorized_operations(broker, context, ResourceType.GROUP, group_id)
        return describe(group, operations)
    dead = GroupState.DEAD.value
    if version < UNKNOWN_GROUP_FROM:
        return DescribedGroup(group_id=group_id, group_state=dead)
    unknown = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        group_id=group_id,
        group_state=dead,
        error_code=unknown,
        error_message=f"group {group_id} not found",
    )


def describe(group: Group, operations: int) -> DescribedGroup:
    """Describes the group. Metadata of members has a meaning only under the protocol they agreed
    on."""
    protocol = group.rebalance.protocol_name if group.state is GroupState.STABLE else None
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_of(protocol),
            member_assignment=member.assignment,
        )
        for member in group.roster
    ]
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.rebalance.protocol_type or "",
        protocol_data=protocol or "",
        members=tuple(members),
        authorized_operations=operations,
    )
