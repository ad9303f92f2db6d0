"""JoinGroup (key 11), versions 0 to 9: a group member joins the next generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, NullableSince, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=11, versions=(0, 9), flexible_from=6)
class JoinGroupRequest(Request["JoinGroupResponse"]):
    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1), IGNORABLE] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(5)] = None
    protocol_type: str = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: Annotated[str | None, Since(8), IGNORABLE] = None


@struct
class JoinGroupRequestProtocol:
    name: str = ""
    metadata: bytes = b""


@response(versions=(0, 9), flexible_from=6)
class JoinGroupResponse:
    throttle_time_ms: Annotated[Int32, Since(2), IGNORABLE] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Since(7), IGNORABLE] = None
    protocol_name: Annotated[str | None, NullableSince(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, Since(9)] = False
    member_id: str = ""
    members: Sequence[JoinGroupResponseMember] = ()


@struct
class JoinGroupResponseMember:
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(5), IGNORABLE] = None
    metadata: bytes = b""
