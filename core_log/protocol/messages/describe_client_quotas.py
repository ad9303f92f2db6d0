"""DescribeClientQuotas (key 48), versions 0 to 1: the quotas of users, clients and addresses."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Float64, Int8, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=48, versions=(0, 1), flexible_from=1)
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    components: Sequence[QuotaFilterComponent] = ()
    strict: bool = False


@struct
class QuotaFilterComponent:
    entity_type: str = ""
    match_type: Int8 = 0
    """0 is this name, 1 the default, 2 any of that type."""
    match: str | None = ""


@response(versions=(0, 1), flexible_from=1)
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: Sequence[DescribedQuota] | None = ()


@struct
class DescribedQuota:
    entity: Sequence[DescribedEntity] = ()
    values: Sequence[QuotaValue] = ()


@struct
class DescribedEntity:
    entity_type: str = ""
    entity_name: str | None = ""


@struct
class QuotaValue:
    key: str = ""
    value: Float64 = 0.0
