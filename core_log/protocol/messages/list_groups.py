"""ListGroups (key 16), versions 0 to 5: the consumer groups that a broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=16, versions=(0, 5), flexible_from=3)
class ListGroupsRequest(Request["ListGroupsResponse"]):
    states_filter: Annotated[Sequence[str], Since(4)] = ()
    types_filter: Annotated[Sequence[str], Since(5)] = ()


@response(versions=(0, 5), flexible_from=3)
class ListGroupsResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = ()


@struct
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, Since(4), IGNORABLE] = ""
    group_type: Annotated[str, Since(5), IGNORABLE] = ""
