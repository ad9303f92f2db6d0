"""DefaultPrincipalData: how an Envelope names the client on whose behalf it asks."""

from __future__ import annotations

from headwater.core_log.protocol.message import record


@record(versions=(0, 0), flexible_from=0)
class DefaultPrincipalData:
    type: str = ""
    name: str = ""
    token_authenticated: bool = False
