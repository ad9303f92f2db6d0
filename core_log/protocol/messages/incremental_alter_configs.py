"""IncrementalAlterConfigs (key 44), versions 0 to 1: an administrator changes single settings of
topics and brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=44, versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
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
    config_operation: Int8 = 0
    value: str | None = ""


@response(versions=(0, 1), flexible_from=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
