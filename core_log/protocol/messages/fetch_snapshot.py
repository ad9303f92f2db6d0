"""FetchSnapshot (key 59), versions 0 to 1: a replica of the metadata reads a part of the
snapshot that has taken the place of older records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Tagged, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=59, versions=(0, 1), flexible_from=0)
class FetchSnapshotRequest(Request["FetchSnapshotResponse"]):
    cluster_id: Annotated[str | None, Tagged(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: Sequence[SnapshotTopic] = ()


@struct
class SnapshotTopic:
    name: str = ""
    partitions: Sequence[SnapshotPartition] = ()


@struct
class WantedSnapshot:
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class SnapshotPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: WantedSnapshot = WantedSnapshot()
    position: Int64 = 0
    replica_directory_id: Annotated[UUID, Since(1), Tagged(0), IGNORABLE] = ZERO_UUID


@response(versions=(0, 1), flexible_from=0)
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Sequence[SnapshotTopicPart] = ()
    node_endpoints: Annotated[Sequence[SnapshotNodeEndpoint], Since(1), Tagged(0)] = ()


@struct
class SnapshotTopicPart:
    name: str = ""
    partitions: Sequence[SnapshotPart] = ()


@struct
class ServedSnapshot:
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class SnapshotLeader:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class SnapshotPart:
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: ServedSnapshot = ServedSnapshot()
    current_leader: Annotated[SnapshotLeader, Tagged(0)] = SnapshotLeader()
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: memoryview = memoryview(b"")


@struct
class SnapshotNodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
