"""FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a consumer group or a
transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    key: Annotated[str, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[Sequence[str], Since(4)] = ()


@response(versions=(0, 6), flexible_from=3)
class FindCoordinatorResponse:
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[str | None, Since(1), Until(3), IGNORABLE] = ""
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[str, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[Sequence[Coordinator], Since(4)] = ()


@struct
class Coordinator:
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
