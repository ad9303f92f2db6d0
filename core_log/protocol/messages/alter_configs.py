"""AlterConfigs (key 33), versions 0 to 2: an administrator replaces all settings of topics and
brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=33, versions=(0, 2), flexible_from=2)
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


@struct
class AlterableConfig:
    name: str = ""
    value: str | None = ""


@response(versions=(0, 2), flexible_from=2)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
