"""ApiVersions (key 18), versions 0 to 4: a client asks which requests a broker understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=18, versions=(0, 4), flexible_from=3)
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    client_software_name: Annotated[str, Since(3), IGNORABLE] = ""
    client_software_version: Annotated[str, Since(3), IGNORABLE] = ""


@response(versions=(0, 4), flexible_from=3)
class ApiVersionsResponse:
    error_code: Int16 = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: Annotated[Int32, Since(1), IGNORABLE] = 0
    supported_features: Annotated[
        Sequence[SupportedFeatureKey], Since(3), Tagged(0), IGNORABLE
    ] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tagged(1), IGNORABLE] = -1
    finalized_features: Annotated[
        Sequence[FinalizedFeatureKey], Since(3), Tagged(2), IGNORABLE
    ] = ()
    zk_migration_ready: Annotated[bool, Since(3), Tagged(3), IGNORABLE] = False


@struct
class ApiVersion:
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey:
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class FinalizedFeatureKey:
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0
