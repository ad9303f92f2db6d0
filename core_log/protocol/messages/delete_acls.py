"""DeleteAcls (key 31), versions 1 to 3: removes the rules that filters match."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=31, versions=(1, 3), flexible_from=2)
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    filters: Sequence[DeleteAclsFilter] = ()


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@response(versions=(1, 3), flexible_from=2)
class DeleteAclsResponse:
    throttle_time_ms: Int32 = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
