"""EndTxn (key 26), versions 0 to 5: a producer commits or aborts its transaction."""

from __future__ import annotations

from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response


@request(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


@response(versions=(0, 5), flexible_from=3)
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5), IGNORABLE] = -1
    producer_epoch: Annotated[Int16, Since(5), IGNORABLE] = -1
