"""Produce (key 0), versions 3 to 13: a client sends record batches to append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Tagged, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=0, versions=(3, 13), flexible_from=9)
class ProduceRequest(Request["ProduceResponse"]):
    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Sequence[TopicProduceData] = ()


@struct
class TopicProduceData:
    name: Annotated[str, Until(12), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(13), IGNORABLE] = ZERO_UUID
    partition_data: Sequence[PartitionProduceData] = ()


@struct
class PartitionProduceData:
    index: Int32 = 0
    records: memoryview | None = None


@response(versions=(3, 13), flexible_from=9)
class ProduceResponse:
    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(10), Tagged(0)] = ()


@struct
class TopicProduceResponse:
    name: Annotated[str, Until(12), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(13), IGNORABLE] = ZERO_UUID
    partition_responses: Sequence[PartitionProduceResponse] = ()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse:
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5), IGNORABLE] = -1
    record_errors: Annotated[Sequence[BatchIndexAndErrorMessage], Since(8), IGNORABLE] = ()
    error_message: Annotated[str | None, Since(8), IGNORABLE] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tagged(0)] = LeaderIdAndEpoch()


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
