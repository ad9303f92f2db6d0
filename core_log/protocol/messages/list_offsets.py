"""ListOffsets (key 2), versions 1 to 11: a partition's start and end, and the offset of a
timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=2, versions=(1, 11), flexible_from=6)
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: Annotated[Int32, Since(10), IGNORABLE] = 0


@struct
class ListOffsetsTopic:
    name: str = ""
    partitions: Sequence[ListOffsetsPartition] = ()


@struct
class ListOffsetsPartition:
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4), IGNORABLE] = -1
    timestamp: Int64 = 0


@response(versions=(1, 11), flexible_from=6)
class ListOffsetsResponse:
    throttle_time_ms: Annotated[Int32, Since(2), IGNORABLE] = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()


@struct
class ListOffsetsTopicResponse:
    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


# The answer repeats the timestamp, so that a broker that searched for it as a time is not mistaken
# for one that knows these special values.

CLEANED_TO = -101
"""Below the answered offset compaction may have removed older values of a key; 0 if none yet."""

DELETES_DROPPED_TO = -102
"""Below the answered offset compaction may have removed tombstones; 0 if none yet."""
