"""InitProducerId (key 22), versions 0 to 6: a producer asks for its id and epoch, and fences its
predecessor.
"""

from __future__ import annotations

from typing import Annotated

from headwater.core_log.protocol.fields import Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=22, versions=(0, 6), flexible_from=2)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1
    enable2_pc: Annotated[bool, Since(6)] = False
    keep_prepared_txn: Annotated[bool, Since(6)] = False


@response(versions=(0, 6), flexible_from=2)
class InitProducerIdResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, Since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, Since(6)] = -1
