"""DescribeTransactions (key 65), version 0: the state of transactional ids."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32, Int64
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: Sequence[str] = ()


@response(versions=(0, 0), flexible_from=0)
class DescribeTransactionsResponse:
    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[TransactionState] = ()


@struct
class TransactionState:
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[TopicData] = ()


@struct
class TopicData:
    topic: str = ""
    partitions: Sequence[Int32] = ()
