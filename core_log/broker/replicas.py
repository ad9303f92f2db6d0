"""The replicas of partitions on this broker: opens them, and gives each the role that the metadata
says."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakKeyDictionary

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.quotas import ReplicationQuotas
from headwater.core_log.broker.replica_fetcher import ReplicaFetchers
from headwater.core_log.broker.replica_fetches import ReplicaSessions
from headwater.core_log.foundation.errors import HeadwaterError, StorageFailed
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.follower import Follower
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata import (
    METADATA_ID,
    METADATA_TOPIC,
    MetadataChanges,
    Topic,
)
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.core_log.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
NO_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TURN_S = 0.01
"""The longest time for which roles hold up the loop, but for the last partition opened."""


class Replicas:
    """Applies changes of the cluster's metadata to the partitions that have a replica here."""

    def __init__(self, broker: "Broker") -> None:
        self._broker, self._node_id = broker, broker.node_id
        self._hosted: dict[tuple[str, int], Partition] = {}
        self._found: dict[tuple[str | bytes, int], Partition] = {}
        """By name and by id, so that a request finds its partition by one look."""
        self._reasons: dict[tuple[str, int], str] = {}
        self._pending: set[tuple[str, int]] = set()
        """Partitions whose turn has not come yet: they are not offline."""
        self.quotas = ReplicationQuotas(broker.node_id, broker.clock)
        """How fast throttled replicas are copied."""
        self.fetchers = ReplicaFetchers(broker)
        self.sessions = ReplicaSessions()
        self.proofs = LeadershipProofs()
        self.has_failed = asyncio.Event()
        """Set by a failure, so that the recovery of partitions need not wait for its next turn."""
        self.has_failed.set()

    @property
    def all(self) -> Sequence[Partition]:
        """The partitions that have a replica here, including the cluster's metadata."""
        return list(self._hosted.values())

    @property
    def led(self) -> Sequence[Partition]:
        """The partitions that this broker leads, including the cluster's metadata."""
        return [each for each in self._hosted.values() if each.leader is not None]

    def replica(self, topic: str, index: int) -> Partition | None:
        """Returns a partition that has a replica here, whatever its role."""
        return self._hosted.get((topic, index))

    def find_led(self, topic: str | bytes, index: int) -> Partition | None:
        """Returns the partition of that topic, by name or id, if this broker leads and serves
        it."""
        found = self._found.get((topic, index))
        is_led = found is not None and found.leader is not None and found.is_served
        return found if is_led else None

    def find_readable(self, topic: str | bytes, index: int) -> Partition | None:
        """Returns the same, also if this broker only follows: what is committed may be read from
        any replica (KIP-392)."""
        found = self._found.get((topic, index))
        return found if found is not None and found.is_served else None

    def why_not_led(self, topic: str | bytes, index: int) -> ErrorCode:
        if topic in (METADATA_TOPIC, METADATA_ID.bytes):
            return ErrorCode.KAFKA_STORAGE_ERROR if index == 0 else NO_PARTITION
        image = self._broker.image
        if isinstance(topic, str):
            known = image.topic(topic)
        else:
            known = image.topic_by_id(UUID(bytes=topic))
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if known is None or index not in known.partitions:
            return NO_PARTITION
        is_pending = (known.name, index) in self._pending
        if known.partitions[index].leader == self._node_id and not is_pending:
            return ErrorCode.KAFKA_STORAGE_ERROR  # see `PartitionRecovery`
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def open(self) -> Coroutine[None, None, None]:
        """Gives up what has moved away meanwhile; returns what opens every partition that belongs
        here."""
        self.quotas.load(self._broker.image)
        for topic, record in self._broker.image.partitions:
            if self._node_id not in record.replicas:
                self._leave(topic, record)
        return self._in_turns(list(self._list_missing()))

    def apply(self, changes: MetadataChanges) -> Coroutine[None, None, None]:
        """Applies a change that the image has already. Openings and new roles take longer and are
        in the returned coroutine. The next change waits for it."""
        image, coordination = self._broker.image, self._broker.coordination
        self.quotas.apply(image, changes)
        for topic in changes.topics_removed.values():
            for index in topic.partitions:
                self._drop(topic.name, index)
            if coordination is not None:
                coordination.on_removed(topic)
        touched = []
        for (topic_id, _), record in [
            *changes.partitions_added.items(),
            *changes.partitions_changed.items(),
        ]:
            known = image.topic_by_id(topic_id)
            assert known is not None, "a partition belongs to a topic"
            if self._node_id in record.replicas:
                touched.append((known, record))
            else:
                self._leave(known, record)
        self._broker.store.announce(
            TopicPartition(topic.name, each.partition)
            for topic, each in touched
            if (topic.name, each.partition) not in self._hosted
        )
        for topic in changes.configs_changed.values():
            self._configure(topic)
        return self._in_turns(touched)

    def _leave(self, topic: Topic, record: PartitionRecord) -> None:
        """Gives up a replica that has moved to another broker: all that stay have its records."""
        at = TopicPartition(topic.name, record.partition)
        partition = self._hosted.get(at)
        if partition is None and not self._broker.store.holds(at, topic.topic_id):
            return
        if partition is not None:
            partition.leave()
        logger.info("%s-%d has moved to other brokers", *at)
        self._drop(*at)

    def _list_missing(self) -> Iterator[tuple[Topic, PartitionRecord]]:
        """Returns the partitions that belong here and are not open."""
        for topic in self._broker.image.topics.values():
            for record in topic.partitions.values():
                is_here = (topic.name, record.partition) in self._hosted
                if self._node_id in record.replicas and not is_here:
                    yield topic, record

    def _in_turns(
        self, records: Sequence[tuple[Topic, PartitionRecord]]
    ) -> Coroutine[None, None, None]:
        """Returns what settles the partitions without holding up the loop for long."""
        at = {(topic.name, record.partition) for topic, record in records}
        self._pending |= at
        return self._settle_in_turns(records, at)

    async def _settle_in_turns(
        self, records: Sequence[tuple[Topic, PartitionRecord]], at: set[tuple[str, int]]
    ) -> None:
        time = asyncio.get_running_loop().time
        turn_end_s = time() + TURN_S
        try:
            for topic, record in records:
                if time() >= turn_end_s:
                    await asyncio.sleep(0)
                    turn_end_s = time() + TURN_S
                self._pending.discard((topic.name, record.partition))
                self._try_to_settle(topic, record)
        finally:  # after an unexpected error the recovery of partitions opens the rest
            self._pending -= at

    def _try_to_settle(self, topic: Topic, record: PartitionRecord) -> None:
        """Tries to settle a partition. A topic exists once its metadata is committed; if the disk
        cannot open a partition, that one stays offline."""
        try:
            self._settle(topic, record)
        except (OSError, HeadwaterError) as error:
            self.note_failure(TopicPartition(topic.name, record.partition), error)

    def settle(self, at: TopicPartition, *, instead_of: Partition | None = None) -> None:
        """Opens the partition if it belongs here and is not open, or takes its log, which was
        opened again, and gives it its role."""
        topic = self._broker.image.topic(at.topic)
        if topic is not None and at.partition in topic.partitions:
            record = topic.partitions[at.partition]
            if self._node_id in record.replicas:
                self._settle(topic, record, instead_of)

    def _settle(
        self, topic: Topic, record: PartitionRecord, instead_of: Partition | None = None
    ) -> None:
        partition = self._hosted.get((topic.name, record.partition))
        if partition is not None:
            partition.is_replicated = len(record.replicas) > 1
        if partition is None or instead_of is not None:
            self._open(topic, record, instead_of)
        elif record.leader != self._node_id:
            self._follow(partition, topic, record)
        elif partition.leader is None:
            self._elect(partition, topic, record)
        else:
            is_elected_again = record.leader_epoch > partition.leader_epoch
            partition.on_record(
                record,
                min_in_sync=self._broker.configs.min_in_sync(topic.config),
                now_ms=self._broker.clock.monotonic_ms(),
            )
            if is_elected_again:
                self._tell_elected(partition)

    def _open(self, topic: Topic, record: PartitionRecord, instead_of: Partition | None) -> None:
        broker, index = self._broker, record.partition
        log = broker.store.partitions.get(TopicPartition(topic.name, index))
        if log is None:
            config = broker.configs.log_config(topic.config, partition=index)
            log = broker.store.open_partition(
                topic.name, index, topic_id=topic.topic_id, config=config
            )
        mark = min(broker.store.high_watermark(log), log.durable_offset)
        if record.leader != self._node_id:
            log.truncate_to(log.end_offset)  # an epoch without records did not begin
            follower = self._new_follower(log, topic, record, mark)
            partition = Partition(topic.topic_id, log, follower, broker.committer)
            partition.is_replicated = len(record.replicas) > 1
            self.add(partition)
            self.fetchers.follow(partition)
        else:
            leader = self._new_leader(log, topic, record, mark)
            partition = Partition(topic.topic_id, log, leader, broker.committer)
            partition.is_replicated = len(record.replicas) > 1
            has_earlier_records = log.end_offset > 0 or instead_of is not None
            if has_earlier_records and broker.has_short_cuts:
                partition.is_recovering = True
            else:
                partition.begin_epoch()
            self.add(partition)
            if instead_of is not None and broker.has_short_cuts:
                partition.take_over(instead_of)
            self._tell_elected(partition)
        self._reasons.pop((topic.name, index), None)

    def _elect(self, partition: Partition, topic: Topic, record: PartitionRecord) -> None:
        """Leads a partition that followed until now."""
        self.fetchers.leave(partition)
        leader = self._new_leader(partition.log, topic, record, partition.high_watermark)
        partition.lead(leader)
        self._tell_elected(partition)

    def _follow(self, partition: Partition, topic: Topic, record: PartitionRecord) -> None:
        follower = partition.follower
        if follower is None:
            log, mark = partition.log, partition.high_watermark
            try:
                partition.follow(self._new_follower(log, topic, record, mark))
            finally:  # it follows even if its disk refuses
                self._tell_resigned(partition)
                self.fetchers.follow(partition)
        elif record.leader_epoch > follower.leader_epoch:
            follower.on_leader(record.leader, record.leader_epoch)
            self.fetchers.follow(partition)

    def _tell_elected(self, partition: Partition) -> None:
        if self._broker.coordination is not None and partition.is_served:
            self._broker.coordination.on_elected(partition)

    def _tell_resigned(self, partition: Partition) -> None:
        if self._broker.coordination is not None:
            self._broker.coordination.on_resigned(partition.topic, partition.index)

    def _new_leader(
        self, log: PartitionLog, topic: Topic, record: PartitionRecord, high_watermark: int
    ) -> Leader:
        return Leader(
            broker_id=self._node_id,
            leader_epoch=record.leader_epoch,
            assignment=record.assignment,
            in_sync=frozenset(record.in_sync),
            partition_epoch=record.partition_epoch,
            end_offset=log.end_offset,
            durable_offset=log.durable_offset,
            high_watermark=high_watermark,
            min_in_sync=self._broker.configs.min_in_sync(topic.config),
            started_ms=self._broker.clock.monotonic_ms(),
        )

    def _new_follower(
        self, log: PartitionLog, topic: Topic, record: PartitionRecord, high_watermark: int
    ) -> Follower:
        return Follower(
            broker_id=self._node_id,
            leader_id=record.leader,
            leader_epoch=record.leader_epoch,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            durable_offset=log.durable_offset,
            high_watermark=high_watermark,
            last_epoch=log.last_epoch,
            allows_unclean=self._broker.configs.allows_unclean(topic.config),
        )

    def add(self, partition: Partition) -> Partition:
        """Enters an opened partition, in place of an older one of its name."""
        partition.on_durable()
        former = self._hosted.get((partition.topic, partition.index))
        if former is not None:
            self.fetchers.leave(former)
        self._hosted[partition.topic, partition.index] = partition
        self._found[partition.topic, partition.index] = partition
        self._found[partition.topic_id.bytes, partition.index] = partition
        return partition

    def begin_anew(self, at: TopicPartition) -> None:
        """Opens a partition whose files were set aside, empty, to be copied."""
        self._forget(*at)
        self.settle(at)

    def _forget(self, name: str, index: int) -> None:
        partition = self._hosted.pop((name, index), None)
        self._reasons.pop((name, index), None)
        if partition is not None:
            self._found.pop((name, index), None)
            self._found.pop((partition.topic_id.bytes, index), None)
            self.fetchers.leave(partition)
            partition.close_waiters()
            self._tell_resigned(partition)

    def _drop(self, name: str, index: int) -> None:
        self._forget(name, index)
        try:
            removal = self._broker.store.delete_partition(name, index)
        except (OSError, StorageFailed) as error:  # the others must be removed all the same
            logger.error("%s-%d is not removed: %s", name, index, error)
            return
        if removal is not None:
            self._broker.committer.run_aside(removal.run)

    def _configure(self, topic: Topic) -> None:
        configs = self._broker.configs
        for index in topic.partitions:
            partition = self._hosted.get((topic.name, index))
            if partition is not None:
                partition.log.config = configs.log_config(topic.config, partition=index)
                partition.on_settings(
                    min_in_sync=configs.min_in_sync(topic.config),
                    allows_unclean=configs.allows_unclean(topic.config),
                )

    @property
    def unserved(self) -> Sequence[TopicPartition]:
        """Returns the partitions that belong here and are not served, because the disk failed or
        cannot open them."""
        missing = [
            TopicPartition(topic.name, each.partition)
            for topic, each in self._list_missing()
            if (topic.name, each.partition) not in self._pending
        ]
        failed = [
            TopicPartition(*at)
            for at, each in self._hosted.items()
            if each.is_recovering or each.is_deleted or each.log.failure is not None
        ]
        return [*failed, *missing]

    def why_unserved(self, topic: str | bytes, index: int) -> str | None:
        """Returns the disk's last error about a partition that should be served here."""
        if self.why_not_led(topic, index) is not ErrorCode.KAFKA_STORAGE_ERROR:
            return None
        at = (self._broker.topic_name(topic), index)
        partition = self._hosted.get(at)
        failure = None if partition is None else partition.log.failure
        return self._reasons.get(at) or failure

    def note_failure(self, at: TopicPartition, error: Exception) -> None:
        """Logs a failure, once as long as it stays the same."""
        self.has_failed.set()
        if self._reasons.get(at) != str(error):
            self._reasons[at] = str(error)
            logger.error("%s-%d is offline: %s", *at, error)

    def forget_failure(self, partition: Partition) -> None:
        self._reasons.pop((partition.topic, partition.index), None)

    async def close(self) -> None:
        """Follows nobody any more."""
        await self.fetchers.close()

    def clear(self) -> None:
        """Forgets all partitions: a file is closed with its last reference."""
        self._hosted.clear()
        self._found.clear()


class LeadershipProofs:
    """Numbers the questions of this broker. A follower that begins a fetch after an answer that has
    left after a question had not heard of another leader then. A fetch that was under way already
    says nothing, so that it is answered at once, and the next one of its connection counts."""

    def __init__(self) -> None:
        self.question = 0
        self._answered: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()

    def note_answer(self, peer: Peer) -> None:
        """Called when the answer to a follower's fetch leaves on its connection."""
        self._answered[peer] = self.question

    def answered_before(self, peer: Peer) -> int:
        """Returns the newest question that a fetch which comes now on this connection proves."""
        return self._answered.get(peer, 0)

    async def confirm(self, partition: Partition) -> None:
        """Returns once it is sure that no other leader of the partition had been elected when this
        was called. Raises `LogUnavailable` if that cannot be proved."""
        if partition.is_replicated:
            self.question += 1
            await partition.wait_proved(self.question)
        else:
            partition.check_led()


async def find_unproved(
    broker: "Broker", partitions: Sequence[TopicPartition]
) -> Collection[TopicPartition]:
    """Asks for a proof of each partition that is led here; returns those without one."""
    led = {
        at: partition
        for at in partitions
        if (partition := broker.find_led(*at)) is not None and partition.is_replicated
    }
    if not led:
        return ()
    confirm = broker.replicas.proofs.confirm
    proofs = await asyncio.gather(*map(confirm, led.values()), return_exceptions=True)
    for proof in proofs:
        if proof is not None and not isinstance(proof, HeadwaterError):
            raise proof
    return [at for at, proof in zip(led, proofs, strict=True) if proof is not None]
