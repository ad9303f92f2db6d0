"""Which replica of a partition a client should read from (KIP-392)."""

from collections.abc import Mapping

from headwater.core_log.replication.leader import Leader


def choose_read_replica(
    leader: Leader, *, rack: str, racks: Mapping[int, str | None], offset: int
) -> int | None:
    """Returns a follower in the client's rack that has the offset; None for the leader. `racks` are
    those of the brokers that are alive. The rules are those of Kafka's RackAwareReplicaSelector: a
    replica that is not in sync would keep the client behind for as long as it lags."""
    if not rack or racks.get(leader.broker_id) == rack:
        return None
    near = [
        (progress.offset, progress.caught_up_ms, replica)
        for replica, progress in leader.progress.items()
        if replica in leader.in_sync
        and racks.get(replica) == rack
        and progress.start_offset <= offset <= progress.offset
    ]
    return max(near)[2] if near else None
