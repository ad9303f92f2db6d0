"""The log of the metadata partition, as its quorum and the metadata's image see it."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import CorruptLog, NotController
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import StoredBatch, StoredRecord, TopicPartition
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.control_records import (
    ControlRecordKey,
    ControlRecordType,
    KRaftVersions,
    LeaderChangeMessage,
    LeaderChangeVoter,
    QuorumVoter,
    VoterEndpoint,
    VotersRecord,
)
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC
from headwater.core_log.replication.metadata_log import METADATA_LOG_CONFIG
from headwater.core_log.replication.snapshots import MetadataSnapshot, SnapshotHead
from headwater.core_log.replication.voters import QuorumVersions, ReplicaKey, Voter
from headwater.core_log.storage.files import Bytes
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store

if TYPE_CHECKING:
    from headwater.core_log.broker.metadata_quorum import MetadataQuorum
    from headwater.core_log.broker.partition import Partition

LISTENER = "PLAINTEXT"
NO_EPOCH = NO_NODE = -1
logger = logging.getLogger(__name__)
METADATA_AT = TopicPartition(METADATA_TOPIC, 0)


class LogView:
    """The metadata log as the quorum sees it; a snapshot may have taken the place of its
    beginning."""

    def __init__(self, log: PartitionLog, start_epoch: int = NO_EPOCH) -> None:
        """`start_epoch` is that of the last record in the snapshot."""
        self.log, self.start_epoch = log, start_epoch

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def durable_offset(self) -> int:
        return self.log.durable_offset

    @property
    def last_epoch(self) -> int:
        if self.log.end_offset == self.log.start_offset:
            return self.start_epoch
        return self.log.epochs.epoch_at(self.log.end_offset - 1)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if self.log.end_offset > self.log.start_offset or self.start_epoch == NO_EPOCH:
            return self.log.epochs.end_offset_for(epoch)
        if epoch > self.start_epoch:
            return NO_EPOCH, NO_EPOCH
        return epoch, self.log.start_offset


class MetadataStateLog:
    """The partition for the metadata's image: what is committed can be read, and the leader of the
    quorum appends."""

    def __init__(self, partition: "Partition", quorum: "MetadataQuorum", clock: Clock) -> None:
        self._partition, self._quorum, self._clock = partition, quorum, clock

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._quorum.high_watermark

    def append(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> int:
        if not self._quorum.is_leader:
            raise NotController("the broker is not the active controller")
        now_ms = self._clock.now_ms()
        plain = [PlainRecord(key, value, timestamp_ms=now_ms) for key, value in records]
        batch = encode_batch(plain)
        self._partition.log.append(
            memoryview(batch),
            BatchHeader.read(batch),
            leader_epoch=self._quorum.leader_epoch,
            now_ms=now_ms,
        )
        self._partition.on_written(is_urgent=True)
        return self._partition.log.end_offset

    async def durable(self, end_offset: int) -> None:
        await self._quorum.wait_committed(end_offset)

    def read_from(self, offset: int) -> Iterator[StoredBatch]:
        for batch in self._partition.log.batches(offset):
            if BatchHeader.read(batch).next_offset > offset:
                header, records = decode_batch(batch)
                stored = [StoredRecord(each.offset, each.key, each.value) for each in records]
                yield StoredBatch(header, stored)

    def voters_at(self, end_offset: int) -> tuple[Voter, ...]:
        return self._quorum.voters_at(end_offset)

    def shorten(self, snapshot: MetadataSnapshot) -> None:
        head = SnapshotHead(snapshot.end_offset, snapshot.epoch, snapshot.voters)
        self._quorum.snapshot = head
        self._partition.log.delete_records_before(snapshot.end_offset)


def encode_leader_change(leader: int, voters: Sequence[ReplicaKey], *, now_ms: int) -> bytearray:
    """Returns the batch that begins a leader's epoch."""
    written = tuple(LeaderChangeVoter(voter_id=each.node_id) for each in voters)
    message = LeaderChangeMessage(leader_id=leader, voters=written, granting_voters=written)
    return _encode_control(ControlRecordType.LEADER_CHANGE, message, now_ms)


def encode_voters(voters: Sequence[Voter], *, now_ms: int) -> bytearray:
    """Returns the batch of a new set of voters."""
    message = VotersRecord(
        voters=[
            QuorumVoter(
                voter_id=each.key.node_id,
                voter_directory_id=each.key.directory_id,
                endpoints=(VoterEndpoint(name=LISTENER, host=each.host, port=each.port),),
                k_raft_version_feature=KRaftVersions(
                    min_supported_version=each.versions.lowest,
                    max_supported_version=each.versions.highest,
                ),
                replaces=NO_NODE if each.replaces is None else each.replaces,
            )
            for each in voters
        ]
    )
    return _encode_control(ControlRecordType.KRAFT_VOTERS, message, now_ms)


def _encode_control(kind: ControlRecordType, message: object, now_ms: int) -> bytearray:
    key = encode_record(ControlRecordKey(type=kind), 0)
    plain = PlainRecord(key, encode_record(message, 0), timestamp_ms=now_ms)
    return encode_batch([plain], is_control=True)


def find_voters(batches: Bytes) -> Iterator[tuple[int, tuple[Voter, ...]]]:
    """Yields the sets of voters among batches, with the offsets of their records."""
    for batch in iterate_batches(batches):
        yield from voters_in(batch)


def voters_in(batch: Bytes) -> Iterator[tuple[int, tuple[Voter, ...]]]:
    if not BatchHeader.read(batch).is_control:
        return
    for each in decode_batch(batch)[1]:
        if decode_record(ControlRecordKey, each.key or b"").type == ControlRecordType.KRAFT_VOTERS:
            yield each.offset, _read_voters(decode_record(VotersRecord, each.value or b""))


def _read_voters(record: VotersRecord) -> tuple[Voter, ...]:
    found = []
    for each in record.voters:
        key = ReplicaKey(each.voter_id, each.voter_directory_id)
        host, port = next(((at.host, at.port) for at in each.endpoints), ("", 0))
        versions = each.k_raft_version_feature
        supported = QuorumVersions(versions.min_supported_version, versions.max_supported_version)
        replaces = None if each.replaces == NO_NODE else each.replaces
        found.append(Voter(key, host, port, supported, replaces))
    return tuple(found)


def open_metadata_log(store: Store, settings: BrokerSettings) -> PartitionLog:
    """A voter whose log is damaged or missing has lost votes and decisions that it promised to
    keep. It goes on as a new voter, which copies the log of the others: under its former id it
    might elect a leader that lacks them."""
    try:
        return _open(store)
    except CorruptLog as error:
        if not store.has_joined:
            raise
        if not settings.join:
            raise CorruptLog(
                f"the cluster's metadata: {error.problem}",
                **error.facts,
                hint="start the broker with --join and the address of another one, which has it",
            ) from error
        logger.warning("the cluster's metadata is copied anew from other brokers: %s", error)
        store.renew_directory_id()
        store.set_damaged_aside(METADATA_AT)
        return _open(store)


def _open(store: Store) -> PartitionLog:
    return store.open_partition(METADATA_TOPIC, 0, topic_id=METADATA_ID, config=METADATA_LOG_CONFIG)
