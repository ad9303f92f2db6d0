"""Envelope (key 58), version 0: a client's request, passed on to the controller by
the broker that has received it."""

from __future__ import annotations

from headwater.core_log.protocol.fields import Int16
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=58, versions=(0, 0), flexible_from=0)
class EnvelopeRequest(Request["EnvelopeResponse"]):
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


@response(versions=(0, 0), flexible_from=0)
class EnvelopeResponse:
    response_data: bytes | None = None
    error_code: Int16 = 0
