"""Reads a snapshot of the metadata from the leader of the quorum."""

from collections.abc import Callable

from headwater.core_log.broker.peers import Peers
from headwater.core_log.broker.quorum_messages import Sender, snapshot_request
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.protocol.messages.fetch import SnapshotId
from headwater.core_log.replication.quorum import QuorumFetch


async def fetch_snapshot(
    peers: Peers,
    asked: QuorumFetch,
    wanted: SnapshotId,
    sender: Sender,
    *,
    is_current: Callable[[], bool],
) -> bytes:
    """Returns it whole; a change of leader or epoch meanwhile abandons it."""
    data = bytearray()
    while True:
        request = snapshot_request(asked.epoch, wanted.end_offset, wanted.epoch, len(data), sender)
        answer = await peers.poll(asked.leader, request)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            raise LogUnavailable("the leader has another snapshot by now")
        part = answer.topics[0].partitions[0]
        data += part.unaligned_records
        if not is_current():
            raise LogUnavailable("the quorum has another leader by now")
        if len(data) >= part.size or not len(part.unaligned_records):
            return bytes(data)
