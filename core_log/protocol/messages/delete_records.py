"""DeleteRecords (key 21), versions 0 to 2: an administrator moves up the start of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32, Int64
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=21, versions=(0, 2), flexible_from=2)
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsTopic:
    name: str = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = 0
    offset: Int64 = 0


@response(versions=(0, 2), flexible_from=2)
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()


@struct
class DeleteRecordsTopicResult:
    name: str = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0
