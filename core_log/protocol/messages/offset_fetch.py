"""OffsetFetch (key 9), versions 1 to 10: how far consumer groups have read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import (
    IGNORABLE,
    Int16,
    Int32,
    Int64,
    NullableSince,
    Since,
    Until,
)
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=9, versions=(1, 10), flexible_from=6)
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    group_id: Annotated[str, Until(7)] = ""
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, Until(7), NullableSince(2)] = ()
    groups: Annotated[Sequence[OffsetFetchRequestGroup], Since(8)] = ()
    require_stable: Annotated[bool, Since(7)] = False


@struct
class OffsetFetchRequestTopic:
    name: str = ""
    partition_indexes: Sequence[Int32] = ()


@struct
class OffsetFetchRequestGroup:
    group_id: str = ""
    member_id: Annotated[str | None, Since(9), IGNORABLE] = None
    member_epoch: Annotated[Int32, Since(9), IGNORABLE] = -1
    topics: Sequence[OffsetFetchRequestTopics] | None = ()


@struct
class OffsetFetchRequestTopics:
    name: Annotated[str, Until(9), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    partition_indexes: Sequence[Int32] = ()


@response(versions=(1, 10), flexible_from=6)
class OffsetFetchResponse:
    throttle_time_ms: Annotated[Int32, Since(3), IGNORABLE] = 0
    topics: Annotated[Sequence[OffsetFetchResponseTopic], Until(7)] = ()
    error_code: Annotated[Int16, Since(2), Until(7), IGNORABLE] = 0
    groups: Annotated[Sequence[OffsetFetchResponseGroup], Since(8)] = ()


@struct
class OffsetFetchResponseTopic:
    name: str = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(5), IGNORABLE] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseGroup:
    group_id: str = ""
    topics: Sequence[OffsetFetchResponseTopics] = ()
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: Annotated[str, Until(9), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    partitions: Sequence[OffsetFetchResponsePartitions] = ()


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0
