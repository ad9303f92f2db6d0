"""The coordinators of this broker, on the internal partitions that it leads."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.replicas import LeadershipProofs
from headwater.core_log.broker.transaction_markers import ReachedPartitions, TransactionMarkers
from headwater.core_log.broker.transaction_verification import TransactionVerifier
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.groups.group_coordinator import GroupCoordinator, GroupLimits
from headwater.core_log.groups.transaction_coordinator import TransactionCoordinator
from headwater.core_log.model.log import ProducerStamp, StoredBatch, StoredRecord, TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import (
    UNREADABLE,
    PlainRecord,
    decode_batch,
    encode_batch,
    unreadable,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


class PartitionStateLog:
    """Appends the broker's own records, uncompressed and without sequences, and reads them back."""

    def __init__(
        self, partition: Partition, clock: Clock, proofs: LeadershipProofs | None = None
    ) -> None:
        self.partition, self._clock, self._proofs = partition, clock, proofs

    @property
    def end_offset(self) -> int:
        return self.partition.log.end_offset

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    def forget_before(self, offset: int) -> None:
        """Allows the deletion of older segments, because their state is stored elsewhere."""
        self.partition.log.delete_records_before(offset)

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        assert records, "a batch without records would end the log for whoever reads it"
        leader = self.partition.leader
        if leader is None or not leader.has_enough_in_sync:
            raise LogUnavailable("partition takes no records", topic=self.partition.topic)
        now_ms = self._clock.now_ms()
        plain = [PlainRecord(key, value, timestamp_ms=now_ms) for key, value in records]
        if producer is None:
            batch = encode_batch(plain)
        else:
            batch = encode_batch(
                plain,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_transactional=True,
            )
        self.partition.log.append(
            memoryview(batch),
            BatchHeader.read(batch),
            leader_epoch=self.partition.leader_epoch,
            now_ms=now_ms,
        )
        self.partition.on_written(is_urgent=False)
        return self.partition.log.end_offset

    async def durable(self, end_offset: int) -> None:
        await self.partition.wait_committed(end_offset)

    async def confirm_leadership(self) -> None:
        assert self._proofs is not None, "only coordinators ask whether they still lead"
        await self._proofs.confirm(self.partition)

    def read(self) -> Iterator[StoredBatch]:
        """Returns batches as stored; the caller handles markers and aborted batches."""
        log = self.partition.log
        for batch in log.batches(log.start_offset):
            try:
                header, records = decode_batch(batch)
            except UNREADABLE as error:
                at = TopicPartition(log.topic, log.partition)
                raise unreadable(error, batch, at) from error
            yield StoredBatch(
                header, [StoredRecord(each.offset, each.key, each.value) for each in records]
            )


logger = logging.getLogger(__name__)
TICK_S = 0.05
"""Precision of the deadlines of groups and transactions."""
REST_S = 2.0
"""Longest delay for a deadline that arises without a request, for example behind a slow disk."""
TURN_S = 0.01
"""The longest time for which reading a coordinator's partition holds up the loop."""
LOAD_RETRY_S = 1.0
STATE_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class Coordination:
    """The coordinators. They have the partitions of the internal topics that this broker leads, and
    the time from here.

    A broker alone loads them before anything is served. In a cluster they move with the leaders:
    `on_elected` begins to read a partition, `on_resigned` forgets it, and a read that is overtaken
    by either is dropped.
    """

    def __init__(self, broker: "Broker", random: Random) -> None:
        self._broker = broker
        self._is_loaded = False
        self._has_ended_short_cuts = False
        self._ticker: asyncio.Task[None] | None = None
        self._loads: dict[TopicPartition, asyncio.Task[None]] = {}
        """Reads of partitions that are under way."""
        self._used = asyncio.Event()
        self.groups = GroupCoordinator(
            partition_count=lambda: self._partition_count(OFFSETS_TOPIC),
            open_state_log=self._state_log(OFFSETS_TOPIC),
            clock=broker.clock,
            random=random,
            limits=GroupLimits(
                session_timeout_ms_min=broker.settings.group_session_timeout_ms_min,
                initial_delay_ms=broker.settings.group_rebalance_delay_ms,
            ),
            has_short_cuts=lambda: broker.has_short_cuts,
        )
        self.markers = TransactionMarkers(broker, self._on_ended)
        self.verifier = TransactionVerifier(broker)
        self.transactions = TransactionCoordinator(
            partition_count=lambda: self._partition_count(TRANSACTIONS_TOPIC),
            open_state_log=self._state_log(TRANSACTIONS_TOPIC),
            partitions=ReachedPartitions(broker, self.markers, self._on_ended),
            allocate_producer_ids=broker.allocate_producer_ids,
            clock=broker.clock,
        )

    def _partition_count(self, topic: str) -> int:
        """Returns the partition count with which the topic was created, whatever the setting is
        now."""
        known = self._broker.image.topic(topic)
        return len(known.partitions) if known else self._broker.settings.internal_partitions

    def _state_log(self, topic: str) -> Callable[[int], PartitionStateLog]:
        def open_state_log(index: int) -> PartitionStateLog:
            partition = self._broker.partition(topic, index)
            assert partition is not None, "a coordinator's state is led where it is loaded"
            return PartitionStateLog(partition, self._broker.clock, self._broker.replicas.proofs)

        return open_state_log

    def _on_ended(self, partition: Partition, producer_id: int, commit: bool) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.on_transaction_end(partition.index, producer_id, commit=commit)

    @property
    def has_short_cuts(self) -> bool:
        """Whether this log never had a second broker, see `TransactionPartitions`."""
        return self._broker.image.has_short_cuts and not self._has_ended_short_cuts

    async def end_short_cuts(self) -> None:
        """Called before a second broker is registered, which ends the short cuts for good.
        Everything that a crash could take until now is on disk when this returns. Raises if that is
        not possible yet; then nothing has changed."""
        if not self.has_short_cuts:
            return
        self._has_ended_short_cuts = True
        try:
            await self.transactions.end_short_cuts()
            for partition in self._broker.partitions:
                if partition.log.producers.first_unstable_offset() is not None:
                    await partition.wait_committed(partition.log.end_offset)
        except BaseException:
            self._has_ended_short_cuts = False
            raise

    async def load(self) -> None:
        """Loads the state at the start, and begins to give the coordinators the time."""
        if self.has_short_cuts:
            await self._load_all()
            for partition in self._broker.partitions:
                if partition.is_served:
                    self._forget_deleted(partition)
        self._is_loaded = True
        if not self.has_short_cuts:
            for partition in self._broker.partitions:
                self.on_elected(partition)
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _load_all(self) -> None:
        """Loads everything, offsets first, because ending transactions adds offsets."""
        known = self._broker.image.topic(TRANSACTIONS_TOPIC)
        for index, record in known.partitions.items() if known else ():
            if record.leader == self._broker.node_id:
                self.transactions.expect(index)
        behind = set[Partition]()
        for topic in STATE_TOPICS:
            for partition in self._broker.partitions:
                if partition.topic == topic and not self._try_to_read(partition):
                    behind.add(partition)
        left = await self._recover(was_clean=self._broker.store.was_clean)
        for partition in self._broker.partitions:
            at = TopicPartition(partition.topic, partition.index)
            if partition.is_recovering and partition not in behind and at not in left:
                try:
                    partition.begin_epoch()
                except HeadwaterError as error:
                    self._broker.note_failure(at, error)

    def _try_to_read(self, partition: Partition) -> bool:
        """A coordinator's damaged partition must not stop the others from being served."""
        try:
            self._read(partition)
        except HeadwaterError as error:
            self._broker.note_failure(TopicPartition(partition.topic, partition.index), error)
            return False
        return True

    def _forget_deleted(self, partition: Partition) -> None:
        """Forgets offsets of topics that have been deleted."""
        if partition.topic == OFFSETS_TOPIC:
            image = self._broker.image
            self.groups.forget_deleted(partition.index, lambda at: image.partition(*at) is not None)

    def _read(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self.groups.load(partition.index)
        elif partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.load(partition.index, leader_epoch=partition.leader_epoch)

    async def _recover(self, *, was_clean: bool) -> Collection[TopicPartition]:
        """Returns the partitions in which transactions cannot be ended at the moment."""
        opened = {
            TopicPartition(each.topic, each.index): _open_transactions(each)
            for each in self._broker.partitions
        }
        try:
            return await self.transactions.recover(opened, was_clean=was_clean)
        except HeadwaterError as error:
            logger.error("transactions are not recovered yet: %s", error)
            return [at for at, producers in opened.items() if producers]

    async def finish_transactions(self) -> None:
        if self.transactions.is_behind:
            await self._recover(was_clean=False)

    async def on_recovered(self, partition: Partition) -> None:
        """Called when a partition was opened again, maybe without its unsynced part: reads its
        state again and ends its transactions, before any other append. Raises if that is not
        possible yet."""
        if partition.is_whole and partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.go_on_with(partition.index)  # much of its state exists only in memory
        else:
            self._read(partition)
        at = TopicPartition(partition.topic, partition.index)
        if at in await self._recover(was_clean=False):
            raise LogUnavailable("transactions cannot be ended yet", partition=at)
        await self.transactions.on_partition_reopened(
            at, _open_transactions(partition), is_whole=partition.is_whole
        )

    def on_elected(self, partition: Partition) -> None:
        """Called when this broker leads a partition in a new epoch. Its groups or transactional ids
        are refused until they are read."""
        if partition.topic not in STATE_TOPICS or not self._is_loaded:
            return
        at = TopicPartition(partition.topic, partition.index)
        self._drop_load(at)
        if self.has_short_cuts or not partition.log.end_offset:
            self._read(partition)  # it is new, and empty
            return
        self._coordinator_of(at.topic).begin_load(at.partition)
        load = self._loads[at] = asyncio.ensure_future(self._load_in_turns(partition))
        load.add_done_callback(lambda done: self._loads.get(at) is done and self._loads.pop(at))

    def on_resigned(self, topic: str, index: int) -> None:
        """Called when this broker leads a partition no longer: waiting clients get an error."""
        if topic in STATE_TOPICS:
            self._drop_load(TopicPartition(topic, index))
            self._coordinator_of(topic).unload(index)

    def _coordinator_of(self, topic: str) -> GroupCoordinator | TransactionCoordinator:
        return self.groups if topic == OFFSETS_TOPIC else self.transactions

    def _drop_load(self, at: TopicPartition) -> None:
        load = self._loads.pop(at, None)
        if load is not None:
            load.cancel()

    async def _load_in_turns(self, partition: Partition) -> None:
        """Reads a partition once all of it is committed, which the former leader left open."""
        while True:
            try:
                await partition.wait_committed(partition.log.end_offset)
                await self._read_in_turns(partition)
                self._forget_deleted(partition)
                self.note_use()
                return
            except HeadwaterError as error:
                self._broker.note_failure(TopicPartition(partition.topic, partition.index), error)
            await asyncio.sleep(LOAD_RETRY_S)

    async def _read_in_turns(self, partition: Partition) -> None:
        if partition.topic == OFFSETS_TOPIC:
            steps = self.groups.load_in_steps(partition.index)
        else:
            epoch = partition.leader_epoch
            steps = self.transactions.load_in_steps(partition.index, leader_epoch=epoch)
        time = asyncio.get_running_loop().time
        turn_end_s = time() + TURN_S
        for _ in steps:
            if time() >= turn_end_s:
                await asyncio.sleep(0)
                turn_end_s = time() + TURN_S
        if partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.take_over(partition.index)

    def on_removed(self, topic: Topic) -> None:
        """Deletes the offsets of a removed topic: they mean nothing for a later topic of that
        name."""
        self.groups.on_partitions_deleted(
            [TopicPartition(topic.name, index) for index in topic.partitions]
        )

    def note_use(self) -> None:
        """Called when a coordinator gets a request, so that its next deadline may change."""
        self._used.set()

    async def _until_due(self) -> None:
        """Returns at the next deadline, which is computed again after each request."""
        while True:
            await asyncio.sleep(TICK_S)
            self._used.clear()
            clock, due_ms = self._broker.clock, self.transactions.next_deadline_ms()
            left_ms = self.groups.next_deadline_ms() - clock.monotonic_ms()
            left_s = min(left_ms, left_ms if due_ms is None else due_ms - clock.now_ms()) / 1000
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, REST_S)):
                    await self._used.wait()

    async def _tick(self) -> None:
        while True:
            await self._until_due()
            clock = self._broker.clock
            try:
                self.groups.tick(clock.monotonic_ms())
                await self.transactions.tick(clock.now_ms())
            except HeadwaterError as error:
                logger.error("deadlines of groups or transactions are not handled: %s", error)

    def abandon(self) -> None:
        """Stops without writing anything."""
        for task in self._tasks():
            task.cancel()

    async def close(self) -> None:
        """Writes the state; no request may follow. In a cluster all of it is written already."""
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.transactions.close()
        await self.markers.close()
        await self.verifier.close()
        if self.has_short_cuts:
            await self.transactions.drain()

    def _tasks(self) -> list[asyncio.Future[None]]:
        ticker = [] if self._ticker is None else [self._ticker]
        return [*self._loads.values(), *self.groups.works, *ticker]


def _open_transactions(partition: Partition) -> list[tuple[int, int]]:
    return [
        (each.producer_id, each.producer_epoch)
        for each in partition.log.producers.open_transactions()
    ]
