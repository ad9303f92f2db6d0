"""LeaveGroup (key 13), versions 0 to 5: members leave a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=13, versions=(0, 5), flexible_from=4)
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    group_id: str = ""
    member_id: Annotated[str, Until(2)] = ""
    members: Annotated[Sequence[MemberIdentity], Since(3)] = ()


@struct
class MemberIdentity:
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, Since(5), IGNORABLE] = None


@response(versions=(0, 5), flexible_from=4)
class LeaveGroupResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[MemberResponse], Since(3)] = ()


@struct
class MemberResponse:
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0
