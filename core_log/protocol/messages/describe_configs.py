"""DescribeConfigs (key 32), versions 1 to 4: the settings of topics and brokers, and where each
comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=32, versions=(1, 4), flexible_from=4)
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: bool = False
    include_documentation: Annotated[bool, Since(3)] = False


@struct
class DescribeConfigsResource:
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: Sequence[str] | None = ()


@response(versions=(1, 4), flexible_from=4)
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[DescribeConfigsResult] = ()


@struct
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


@struct
class DescribeConfigsResourceResult:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: Annotated[Int8, Since(3), IGNORABLE] = 0
    documentation: Annotated[str | None, Since(3), IGNORABLE] = ""


@struct
class DescribeConfigsSynonym:
    name: str = ""
    value: str | None = ""
    source: Int8 = 0
