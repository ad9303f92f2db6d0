"""UpdateFeatures (key 57), versions 0 to 2: finalizes other levels of the cluster's features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=57, versions=(0, 2), flexible_from=0)
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    timeout_ms: Int32 = 60000
    feature_updates: Sequence[FeatureUpdateKey] = ()
    validate_only: Annotated[bool, Since(1)] = False


@struct
class FeatureUpdateKey:
    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[bool, Until(0)] = False
    upgrade_type: Annotated[Int8, Since(1)] = 1


@response(versions=(0, 2), flexible_from=0)
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: Annotated[Sequence[UpdatableFeatureResult], Until(1), IGNORABLE] = ()


@struct
class UpdatableFeatureResult:
    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
