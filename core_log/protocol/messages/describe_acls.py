"""DescribeAcls (key 29), versions 1 to 3: the rules that a filter matches."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=29, versions=(1, 3), flexible_from=2)
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@response(versions=(1, 3), flexible_from=2)
class DescribeAclsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: Sequence[DescribeAclsResource] = ()


@struct
class DescribeAclsResource:
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: Sequence[AclDescription] = ()


@struct
class AclDescription:
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
