"""DescribeGroups (key 15), versions 0 to 6: the state and the members of consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=15, versions=(0, 6), flexible_from=5)
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: Sequence[str] = ()
    include_authorized_operations: Annotated[bool, Since(3)] = False


@response(versions=(0, 6), flexible_from=5)
class DescribeGroupsResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    groups: Sequence[DescribedGroup] = ()


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(6)] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: Annotated[Int32, Since(3)] = -0x8000_0000


@struct
class DescribedGroupMember:
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(4), IGNORABLE] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
