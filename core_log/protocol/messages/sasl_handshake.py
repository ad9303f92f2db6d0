"""SaslHandshake (key 17), versions 0 to 1: a client names its authentication mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16
from headwater.core_log.protocol.message import NEVER, Request, request, response


@request(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: str = ""


@response(versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeResponse:
    error_code: Int16 = 0
    mechanisms: Sequence[str] = ()
