"""ListConfigResources (key 74), versions 0 to 1: the things that have a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=74, versions=(0, 1), flexible_from=0)
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    resource_types: Annotated[Sequence[Int8], Since(1)] = ()


@response(versions=(0, 1), flexible_from=0)
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Sequence[ConfigResource] = ()


@struct
class ConfigResource:
    resource_name: str = ""
    resource_type: Annotated[Int8, Since(1), IGNORABLE] = 16
