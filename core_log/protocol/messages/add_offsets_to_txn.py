"""AddOffsetsToTxn (key 25), versions 0 to 4: a transaction announces the consumer group whose
offsets it will commit.
"""

from __future__ import annotations

from headwater.core_log.protocol.fields import Int16, Int32, Int64
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=25, versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


@response(versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
