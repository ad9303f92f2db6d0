"""AllocateProducerIds (key 67), version 0: a broker gets producer ids that it may
give to clients."""

from __future__ import annotations

from headwater.core_log.protocol.fields import Int16, Int32, Int64
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=67, versions=(0, 0), flexible_from=0)
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@response(versions=(0, 0), flexible_from=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
