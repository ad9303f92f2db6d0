"""AddPartitionsToTxn (key 24), versions 0 to 5: a transaction announces the partitions it will
write to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=24, versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    transactions: Annotated[Sequence[AddPartitionsToTxnTransaction], Since(4)] = ()
    v3_and_below_transactional_id: Annotated[str, Until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Until(3)] = 0
    v3_and_below_topics: Annotated[Sequence[AddPartitionsToTxnTopic], Until(3)] = ()


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: bool = False
    topics: Sequence[AddPartitionsToTxnTopic] = ()


@struct
class AddPartitionsToTxnTopic:
    name: str = ""
    partitions: Sequence[Int32] = ()


@response(versions=(0, 5), flexible_from=3)
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(4), IGNORABLE] = 0
    results_by_transaction: Annotated[Sequence[AddPartitionsToTxnResult], Since(4)] = ()
    results_by_topic_v3_and_below: Annotated[Sequence[AddPartitionsToTxnTopicResult], Until(3)] = ()


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = ""
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = ()


@struct
class AddPartitionsToTxnTopicResult:
    name: str = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0
