"""AlterUserScramCredentials (key 51), version 0: adds, changes and removes users of SASL/SCRAM."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=51, versions=(0, 0), flexible_from=0)
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


@struct
class ScramCredentialDeletion:
    name: str = ""
    mechanism: Int8 = 0


@struct
class ScramCredentialUpsertion:
    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


@response(versions=(0, 0), flexible_from=0)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()


@struct
class AlterUserScramCredentialsResult:
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
