"""OffsetCommit (key 8), versions 2 to 10: a consumer group stores how far it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=8, versions=(2, 10), flexible_from=8)
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(7)] = None
    retention_time_ms: Annotated[Int64, Until(4), IGNORABLE] = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()


@struct
class OffsetCommitRequestTopic:
    name: Annotated[str, Until(9), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    partitions: Sequence[OffsetCommitRequestPartition] = ()


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6), IGNORABLE] = -1
    committed_metadata: str | None = ""


@response(versions=(2, 10), flexible_from=8)
class OffsetCommitResponse:
    throttle_time_ms: Annotated[Int32, Since(3), IGNORABLE] = 0
    topics: Sequence[OffsetCommitResponseTopic] = ()


@struct
class OffsetCommitResponseTopic:
    name: Annotated[str, Until(9), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    partitions: Sequence[OffsetCommitResponsePartition] = ()


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
