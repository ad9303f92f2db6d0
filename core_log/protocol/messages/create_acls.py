"""CreateAcls (key 30), versions 1 to 3: rules that allow or deny."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=30, versions=(1, 3), flexible_from=2)
class CreateAclsRequest(Request["CreateAclsResponse"]):
    creations: Sequence[AclCreation] = ()


@struct
class AclCreation:
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@response(versions=(1, 3), flexible_from=2)
class CreateAclsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AclCreationResult] = ()


@struct
class AclCreationResult:
    error_code: Int16 = 0
    error_message: str | None = ""
