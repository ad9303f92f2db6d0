"""OffsetDelete (key 47), version 0: an administrator deletes offsets of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import NEVER, Request, request, response, struct


@request(api_key=47, versions=(0, 0), flexible_from=NEVER)
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    group_id: str = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


@struct
class OffsetDeleteRequestTopic:
    name: str = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = 0


@response(versions=(0, 0), flexible_from=NEVER)
class OffsetDeleteResponse:
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()


@struct
class OffsetDeleteResponseTopic:
    name: str = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
