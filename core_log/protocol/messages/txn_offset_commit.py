"""TxnOffsetCommit (key 28), versions 0 to 5: a transaction commits offsets of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=28, versions=(0, 5), flexible_from=3)
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[str, Since(3)] = ""
    group_instance_id: Annotated[str | None, Since(3)] = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()


@struct
class TxnOffsetCommitRequestTopic:
    name: str = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2), IGNORABLE] = -1
    committed_metadata: str | None = ""


@response(versions=(0, 5), flexible_from=3)
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()


@struct
class TxnOffsetCommitResponseTopic:
    name: str = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
