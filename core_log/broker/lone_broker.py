"""Makes a broker the only one of its cluster, by its files: the majority is gone for good."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import UUID

from headwater.core_log.broker.quorum_log import encode_voters, voters_in
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC, MetadataImage
from headwater.core_log.replication.metadata_log import METADATA_LOG_CONFIG
from headwater.core_log.replication.metadata_records import (
    BrokerRemovalRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicReplicasRecord,
    decode_record,
    encode_record,
)
from headwater.core_log.replication.snapshots import MetadataSnapshots
from headwater.core_log.replication.voters import (
    NOBODY,
    ElectionState,
    ReplicaKey,
    Voter,
    read_quorum_state,
    write_quorum_state,
)
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.properties import META, decode_uuid, read_properties
from headwater.core_log.storage.store import Store

AHEAD = 1_000_000
"""Epochs and producer ids are raised by this: the others may have used some that are not known
here."""


@dataclass(frozen=True, slots=True)
class LoneBrokerPlan:
    """The result for a cluster of which one broker is left, as far as this broker knows."""

    node_id: int
    others: Sequence[int]
    """The brokers that are removed from the metadata."""
    in_sync: Sequence[TopicPartition]
    """It had everything acknowledged when it last heard of the cluster."""
    behind: Sequence[TopicPartition]
    """It was not in sync: acknowledged records are missing."""
    empty: Sequence[TopicPartition]
    """No replica was here: the partition begins anew, without records."""


class LoneBroker:
    """The files of a broker that does not run."""

    def __init__(self, store: Store, node_id: int, clock: Clock) -> None:
        self._store, self._node_id, self._clock = store, node_id, clock
        self._log = store.open_partition(
            METADATA_TOPIC, 0, topic_id=METADATA_ID, config=METADATA_LOG_CONFIG
        )
        self._image, self._epoch, self._voters = self._read()
        self.plan = self._make_plan()

    def _read(self) -> tuple[MetadataImage, int, tuple[Voter, ...]]:
        """All metadata that is here: the only voter has committed whatever its log has."""
        image, voters, epoch = MetadataImage(), tuple[Voter, ...](), 0
        snapshot = MetadataSnapshots(self._store.files, self._log.directory).newest()
        if snapshot is not None:
            image.apply(snapshot.records, snapshot.end_offset)
            voters, epoch = snapshot.voters, snapshot.epoch
        for batch in self._log.batches(self._log.start_offset):
            header, records = decode_batch(batch)
            epoch = header.leader_epoch
            if header.is_control:
                voters = [voters, *(each for _, each in voters_in(batch))][-1]
            elif header.next_offset > image.end_offset:
                image.apply(_decoded(records, image.end_offset), header.next_offset)
        with suppress(DecodeError):  # a vote that is not known is below the new epoch as well
            stored = read_quorum_state(self._store.files, self._log.directory)
            epoch = max(epoch, 0 if stored is None else stored.epoch)
        return image, epoch, voters

    def _make_plan(self) -> LoneBrokerPlan:
        in_sync, behind, empty = list[TopicPartition](), list[TopicPartition](), []
        for topic, record in self._image.partitions:
            at = TopicPartition(topic.name, record.partition)
            if self._node_id in record.in_sync:
                in_sync.append(at)
            elif self._node_id in record.replicas:
                behind.append(at)
            else:
                empty.append(at)
        others = sorted(self._image.brokers.keys() - {self._node_id})
        return LoneBrokerPlan(self._node_id, others, in_sync, behind, empty)

    @property
    def is_alone(self) -> bool:
        """Whether it is the only voter already, so that it needs nobody."""
        if not self._voters:
            return not self._store.has_joined
        return {each.key for each in self._voters} == {self._key}

    @property
    def _key(self) -> ReplicaKey:
        return ReplicaKey(self._node_id, decode_uuid(self._store.directory_id))

    def carry_out(self) -> None:
        """On disk on return. Interrupted, it can be repeated: nothing else has become of it."""
        if self.is_alone:
            raise ConfigError(
                "the broker is the only voter of its cluster, and needs no recovery",
                hint=f"headwater broker --data {self._store.data}",
            )
        if not self._image.brokers:
            raise ConfigError(
                "the directory knows nothing of its cluster yet",
                hint="take the directory of a broker that was a live member",
                directory=str(self._store.data),
            )
        epoch, now_ms = self._epoch + AHEAD, self._clock.now_ms()
        self._store.renew_cluster_id()
        write_quorum_state(
            self._store.files, self._log.directory, ElectionState(epoch, NOBODY, None)
        )
        records = [
            PlainRecord(None, encode_record(each), timestamp_ms=now_ms) for each in self._records()
        ]
        voters = encode_voters([Voter(self._key, *self._address())], now_ms=now_ms)
        for batch in (encode_batch(records), voters):
            header = BatchHeader.read(batch)
            self._log.append(memoryview(batch), header, leader_epoch=epoch, now_ms=now_ms)
        self._log.sync()

    def _address(self) -> tuple[str, int]:
        known = self._image.brokers.get(self._node_id)
        return ("", 0) if known is None else (known.host, known.port)

    def _records(self) -> Iterator[MetadataRecord]:
        for topic, record in self._image.partitions:
            yield _led_here(topic.topic_id, record, self._node_id)
        for topic in self._image.topics.values():
            replicas = max((len(each.replicas) for each in topic.partitions.values()), default=1)
            if topic.has_fixed_replicas and replicas > 1:  # it gets others again as brokers join
                yield TopicReplicasRecord(topic.topic_id, has_fixed_replicas=False)
        for broker_id in self.plan.others:
            yield BrokerRemovalRecord(broker_id)
        yield ProducerIdsRecord(-1, -1, self._image.next_producer_id + AHEAD)


def _decoded(records: Sequence[PlainRecord], from_offset: int) -> Iterator[MetadataRecord]:
    for each in records:
        if each.offset >= from_offset:
            yield decode_record(bytes(each.value or b""))


def _led_here(topic_id: UUID, record: PartitionRecord, node_id: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        topic_id,
        record.partition,
        in_sync=(node_id,),
        leader=node_id,
        leader_epoch=record.leader_epoch + AHEAD,
        partition_epoch=record.partition_epoch + 1,
        replicas=(node_id,),
        adding=(),
        removing=(),
    )


@contextmanager
def lone_broker(data: Path, *, files: Files, clock: Clock, random: Random) -> Iterator[LoneBroker]:
    """Owns the directory meanwhile; raises `DirectoryInUse` if its broker runs."""
    try:
        node_id = int(read_properties(files, data / META)["node.id"])
    except (FileNotFoundError, KeyError, ValueError):
        raise ConfigError("the directory has no log", directory=str(data)) from None
    store = Store.open(data, files=files, clock=clock, random=random, node_id=node_id)
    try:
        yield LoneBroker(store, node_id, clock)
    finally:
        store.close(clean=store.was_clean)
