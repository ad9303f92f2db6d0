"""BrokerHeartbeat (key 63), versions 0 to 2: a registered broker tells the controller
that it lives, and what it wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=63, versions=(0, 2), flexible_from=0)
class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Annotated[Sequence[UUID], Since(1), Tagged(0)] = ()
    cordoned_log_dirs: Annotated[Sequence[UUID] | None, Since(2), Tagged(1)] = None


@response(versions=(0, 2), flexible_from=0)
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
