"""AlterClientQuotas (key 49), versions 0 to 1: sets and removes quotas of users, clients and
addresses."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Float64, Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=49, versions=(0, 1), flexible_from=1)
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    entries: Sequence[QuotaAlteration] = ()
    validate_only: bool = False


@struct
class QuotaAlteration:
    entity: Sequence[AlteredEntity] = ()
    ops: Sequence[QuotaOperation] = ()


@struct
class AlteredEntity:
    entity_type: str = ""
    entity_name: str | None = ""


@struct
class QuotaOperation:
    key: str = ""
    value: Float64 = 0.0
    remove: bool = False


@response(versions=(0, 1), flexible_from=1)
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: Sequence[QuotaAlterationResult] = ()


@struct
class QuotaAlterationResult:
    error_code: Int16 = 0
    error_message: str | None = ""
    entity: Sequence[AlteredEntity] = ()
