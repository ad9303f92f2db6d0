"""BrokerRegistration (key 62), versions 0 to 4: a started broker registers with the
controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=62, versions=(0, 4), flexible_from=0)
class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: UUID = ZERO_UUID
    listeners: Sequence[BrokerListener] = ()
    features: Sequence[BrokerFeature] = ()
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, Since(1)] = False
    log_dirs: Annotated[Sequence[UUID], Since(2), IGNORABLE] = ()
    previous_broker_epoch: Annotated[Int64, Since(3), IGNORABLE] = -1


@struct
class BrokerListener:
    name: str = ""
    host: str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class BrokerFeature:
    name: str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@response(versions=(0, 4), flexible_from=0)
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
