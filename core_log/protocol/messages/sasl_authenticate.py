"""SaslAuthenticate (key 36), versions 0 to 2: one step of a client's authentication."""

from __future__ import annotations

from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int64, Since
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: bytes = b""


@response(versions=(0, 2), flexible_from=2)
class SaslAuthenticateResponse:
    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1), IGNORABLE] = 0
