"""DeleteGroups (key 42), versions 0 to 2: an administrator deletes consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=42, versions=(0, 2), flexible_from=2)
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: Sequence[str] = ()


@response(versions=(0, 2), flexible_from=2)
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult] = ()


@struct
class DeletableGroupResult:
    group_id: str = ""
    error_code: Int16 = 0
