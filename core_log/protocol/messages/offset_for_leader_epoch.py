"""OffsetForLeaderEpoch (key 23), versions 2 to 4: the end offset of a leader epoch, to find where
logs diverge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=23, versions=(2, 4), flexible_from=4)
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    replica_id: Annotated[Int32, Since(3), IGNORABLE] = -2
    topics: Sequence[OffsetForLeaderTopic] = ()


@struct
class OffsetForLeaderTopic:
    topic: str = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


@struct
class OffsetForLeaderPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


@response(versions=(2, 4), flexible_from=4)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()


@struct
class OffsetForLeaderTopicResult:
    topic: str = ""
    partitions: Sequence[EpochEndOffset] = ()


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
