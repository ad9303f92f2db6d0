"""FetchSnapshot (key 59), versions 0 to 1: a part of the metadata's snapshot, for a replica whose
records it has replaced.

A snapshot that a newer one has replaced meanwhile is not found; the replica then begins anew.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ServedSnapshot,
    SnapshotLeader,
    SnapshotPart,
    SnapshotPartition,
    SnapshotTopicPart,
)
from headwater.core_log.replication.metadata import METADATA_TOPIC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

BYTES_MAX = 8 << 20


@handles(FetchSnapshotRequest)
async def handle_fetch_snapshot(
    broker: "Broker", request: FetchSnapshotRequest, context: RequestContext
) -> FetchSnapshotResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = [(topic.name, each.partition) for topic in request.topics for each in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)]:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    part = read_part(broker, request.topics[0].partitions[0], request.max_bytes)
    return FetchSnapshotResponse(
        topics=(SnapshotTopicPart(name=METADATA_TOPIC, partitions=(part,)),)
    )


def read_part(broker: "Broker", asked: SnapshotPartition, bytes_max: int) -> SnapshotPart:
    quorum = broker.quorum
    leader = SnapshotLeader(leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch)

    def refused(code: ErrorCode) -> SnapshotPart:
        return SnapshotPart(error_code=code, current_leader=leader)

    if asked.current_leader_epoch < quorum.leader_epoch:
        return refused(ErrorCode.FENCED_LEADER_EPOCH)
    if asked.current_leader_epoch > quorum.leader_epoch:
        return refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if not quorum.is_leader:
        return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wanted = asked.snapshot_id
    data = broker.snapshots.read(wanted.end_offset, wanted.epoch)
    if data is None:
        return refused(ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= asked.position < len(data):
        return refused(ErrorCode.POSITION_OUT_OF_RANGE)
    end = asked.position + max(1, min(bytes_max, BYTES_MAX))
    return SnapshotPart(
        snapshot_id=ServedSnapshot(end_offset=wanted.end_offset, epoch=wanted.epoch),
        current_leader=leader,
        size=len(data),
        position=asked.position,
        unaligned_records=memoryview(data)[asked.position : end],
    )
