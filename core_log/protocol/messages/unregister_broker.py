"""UnregisterBroker (key 64), version 0: removes a broker that does not come back."""

from __future__ import annotations

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=64, versions=(0, 0), flexible_from=0)
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    broker_id: Int32 = 0


@response(versions=(0, 0), flexible_from=0)
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
