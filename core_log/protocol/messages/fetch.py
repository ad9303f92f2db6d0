"""Fetch (key 1), versions 4 to 18: a consumer or follower reads record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import (
    IGNORABLE,
    Int8,
    Int16,
    Int32,
    Int64,
    Since,
    Tagged,
    Until,
)
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@struct
class ReplicaState:
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@request(api_key=1, versions=(4, 18), flexible_from=12)
class FetchRequest(Request["FetchResponse"]):
    cluster_id: Annotated[str | None, Since(12), Tagged(0), IGNORABLE] = None
    replica_id: Annotated[Int32, Until(14)] = -1
    replica_state: Annotated[ReplicaState, Since(15), Tagged(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7), IGNORABLE] = 0
    session_epoch: Annotated[Int32, Since(7), IGNORABLE] = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Annotated[Sequence[ForgottenTopic], Since(7)] = ()
    rack_id: Annotated[str, Since(11), IGNORABLE] = ""


@struct
class FetchTopic:
    topic: Annotated[str, Until(12), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(13), IGNORABLE] = ZERO_UUID
    partitions: Sequence[FetchPartition] = ()


@struct
class FetchPartition:
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9), IGNORABLE] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5), IGNORABLE] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[UUID, Since(17), Tagged(0), IGNORABLE] = ZERO_UUID
    high_watermark: Annotated[Int64, Since(18), Tagged(1), IGNORABLE] = 0x7FFF_FFFF_FFFF_FFFF


@struct
class ForgottenTopic:
    topic: Annotated[str, Until(12), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(13), IGNORABLE] = ZERO_UUID
    partitions: Sequence[Int32] = ()


@response(versions=(4, 18), flexible_from=12)
class FetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7), IGNORABLE] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(16), Tagged(0)] = ()


@struct
class FetchableTopicResponse:
    topic: Annotated[str, Until(12), IGNORABLE] = ""
    topic_id: Annotated[UUID, Since(13), IGNORABLE] = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


@struct
class EpochEndOffset:
    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class PartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5), IGNORABLE] = -1
    diverging_epoch: Annotated[EpochEndOffset, Since(12), Tagged(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Since(12), Tagged(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Since(12), Tagged(2)] = SnapshotId()
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: memoryview | None = None


@struct
class AbortedTransaction:
    producer_id: Int64 = 0
    first_offset: Int64 = 0


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
