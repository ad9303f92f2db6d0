"""DescribeProducers (key 61), version 0: the producers of a partition, and their open
transactions."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32, Int64
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=61, versions=(0, 0), flexible_from=0)
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    topics: Sequence[TopicRequest] = ()


@struct
class TopicRequest:
    name: str = ""
    partition_indexes: Sequence[Int32] = ()


@response(versions=(0, 0), flexible_from=0)
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse] = ()


@struct
class TopicResponse:
    name: str = ""
    partitions: Sequence[PartitionResponse] = ()


@struct
class PartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: Sequence[ProducerState] = ()


@struct
class ProducerState:
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
