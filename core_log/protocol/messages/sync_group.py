"""SyncGroup (key 14), versions 0 to 5: the leader of a group sends the assignments, and every
member gets its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=14, versions=(0, 5), flexible_from=4)
class SyncGroupRequest(Request["SyncGroupResponse"]):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(3)] = None
    protocol_type: Annotated[str | None, Since(5), IGNORABLE] = None
    protocol_name: Annotated[str | None, Since(5), IGNORABLE] = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()


@struct
class SyncGroupRequestAssignment:
    member_id: str = ""
    assignment: bytes = b""


@response(versions=(0, 5), flexible_from=4)
class SyncGroupResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, Since(5), IGNORABLE] = None
    protocol_name: Annotated[str | None, Since(5), IGNORABLE] = None
    assignment: bytes = b""
