"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=75, versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    topics: Sequence[TopicRequest] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@struct
class TopicRequest:
    name: str = ""


@struct
class Cursor:
    topic_name: str = ""
    partition_index: Int32 = 0


@response(versions=(0, 0), flexible_from=0)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: Int32 = -0x8000_0000


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()
