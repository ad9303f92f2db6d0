"""ListTransactions (key 66), versions 0 to 2: the transactional ids that a broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=66, versions=(0, 2), flexible_from=0)
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[str | None, Since(2)] = None


@response(versions=(0, 2), flexible_from=0)
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[TransactionState] = ()


@struct
class TransactionState:
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""
