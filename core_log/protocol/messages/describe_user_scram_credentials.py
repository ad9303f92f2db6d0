"""DescribeUserScramCredentials (key 50), version 0: the users of SASL/SCRAM."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=50, versions=(0, 0), flexible_from=0)
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    users: Sequence[UserName] | None = ()


@struct
class UserName:
    name: str = ""


@response(versions=(0, 0), flexible_from=0)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()


@struct
class DescribeUserScramCredentialsResult:
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: Sequence[CredentialInfo] = ()


@struct
class CredentialInfo:
    mechanism: Int8 = 0
    iterations: Int32 = 0
