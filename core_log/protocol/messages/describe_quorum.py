"""DescribeQuorum (key 55), versions 0 to 2: the leader of the metadata quorum, its voters and its
observers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=55, versions=(0, 2), flexible_from=0)
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    topics: Sequence[DescribeQuorumTopic] = ()


@struct
class DescribeQuorumTopic:
    topic_name: str = ""
    partitions: Sequence[DescribeQuorumPartition] = ()


@struct
class DescribeQuorumPartition:
    partition_index: Int32 = 0


@response(versions=(0, 2), flexible_from=0)
class DescribeQuorumResponse:
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(2), IGNORABLE] = ""
    topics: Sequence[DescribedQuorumTopic] = ()
    nodes: Annotated[Sequence[QuorumNode], Since(2)] = ()


@struct
class DescribedQuorumTopic:
    topic_name: str = ""
    partitions: Sequence[DescribedQuorumPartition] = ()


@struct
class DescribedQuorumPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(2), IGNORABLE] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Sequence[QuorumReplica] = ()
    observers: Sequence[QuorumReplica] = ()


@struct
class QuorumReplica:
    replica_id: Int32 = 0
    replica_directory_id: Annotated[UUID, Since(2)] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, Since(1), IGNORABLE] = -1
    last_caught_up_timestamp: Annotated[Int64, Since(1), IGNORABLE] = -1


@struct
class QuorumNode:
    node_id: Int32 = 0
    listeners: Sequence[QuorumListener] = ()


@struct
class QuorumListener:
    name: str = ""
    host: str = ""
    port: UInt16 = 0
