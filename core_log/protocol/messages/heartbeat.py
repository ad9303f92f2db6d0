"""Heartbeat (key 12), versions 0 to 4: a consumer group member says it is alive."""

from __future__ import annotations

from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=12, versions=(0, 4), flexible_from=4)
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(3)] = None


@response(versions=(0, 4), flexible_from=4)
class HeartbeatResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    error_code: Int16 = 0
