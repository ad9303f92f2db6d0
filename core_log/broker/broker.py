"""One broker: its storage, the partitions it leads, and the cluster's metadata, wired together."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from uuid import UUID

from headwater.core_log.broker.batch_contents import Scratch
from headwater.core_log.broker.coordination import Coordination, PartitionStateLog
from headwater.core_log.broker.dispatch import ServedApi
from headwater.core_log.broker.group_commit import GroupCommit
from headwater.core_log.broker.metadata_quorum import MetadataQuorum
from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable, StorageFailed
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.groups.group_coordinator import GroupCoordinator
from headwater.core_log.groups.transaction_coordinator import TransactionCoordinator
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.controller import FEATURES, Controller
from headwater.core_log.replication.decisions import ProducerIdBlock
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    MetadataChanges,
    MetadataImage,
    Topic,
)
from headwater.core_log.replication.metadata_log import METADATA_LOG_CONFIG, MetadataLog
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.core_log.replication.snapshots import MetadataSnapshots
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.replication.voters import ReplicaKey
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.properties import decode_uuid
from headwater.core_log.storage.store import Store

logger = logging.getLogger(__name__)
NO_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TURN_S = 0.01
"""The longest time for which opening partitions holds up the loop, but for the last one opened."""
METADATA_ID = UUID("00000000-0000-0000-0000-000000000001")
"""The topic id that Kafka reserves for the metadata topic."""


class Broker:
    """The parts of a broker that handlers use. Its state changes only on the event loop, so there
    are no locks: between two awaits a handler sees one consistent state."""

    supported_features: Mapping[str, tuple[int, int]] = {
        name: (0, level) for name, level in FEATURES.items()
    }

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        served: Mapping[int, ServedApi],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self.settings, self.store, self.served, self.clock = settings, store, served, clock
        self.node_id, self.cluster_id = settings.node_id, store.cluster_id
        self._random, self.broker_epoch, self.is_stopping = random, -1, False
        self.configs = TopicConfigs(settings.config)
        self.opening, self.scratch = asyncio.Lock(), Scratch()
        """For large batches, which are checked one after the other."""
        self.committer = GroupCommit(
            syncs=settings.fsync == "group",
            flush_wait_ms_max=settings.flush_wait_ms_max,
            after_round=self._after_round,
        )
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._reasons: dict[tuple[str, int], str] = {}
        self._to_open: set[tuple[str, int]] = set()
        """New partitions whose turn has not come yet: they are not offline."""
        self.has_failed = asyncio.Event()
        """Set by a failure, so that the recovery of partitions need not wait for its next turn."""
        self.has_failed.set()
        metadata_partition = self._lead_metadata()
        self.metadata = MetadataLog(
            PartitionStateLog(metadata_partition, clock),
            MetadataSnapshots(store.files, metadata_partition.log.directory),
            self._follow,
        )
        self.controller = Controller(
            self.metadata.image,
            self.configs,
            default_partitions=settings.default_partitions,
            internal_partitions=settings.internal_partitions,
            new_id=self._new_id,
        )
        self._coordination: Coordination | None = None

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def groups(self) -> GroupCoordinator:
        assert self._coordination is not None, "requests are served once the broker is open"
        self._coordination.note_use()
        return self._coordination.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        assert self._coordination is not None, "requests are served once the broker is open"
        self._coordination.note_use()
        return self._coordination.transactions

    @property
    def partitions(self) -> Sequence[Partition]:
        """All partitions that this broker leads, including the cluster's metadata."""
        return list(self._by_name.values())

    async def open(self, host: str, port: int) -> None:
        """Reads the cluster's metadata, registers this broker, and makes every partition and
        coordinator ready."""
        await self.metadata.load()
        await self.metadata.change(self.controller.finalize_features)
        incarnation = self._new_id()
        self.broker_epoch = await self.metadata.change(
            lambda: self.controller.register_broker(
                self.node_id, incarnation, host=host, port=port, now_ms=self.clock.now_ms()
            )
        )
        await self._lead_in_turns(list(self._list_unled()))
        self.store.report_strays()
        self._coordination = Coordination(self, self._random)
        await self._coordination.load()

    @property
    def unserved(self) -> Sequence[TopicPartition]:
        """Returns the partitions that should be served here and are not, because the disk failed or
        cannot open them."""
        unled = [
            TopicPartition(topic.name, each.partition)
            for topic, each in self._list_unled()
            if (topic.name, each.partition) not in self._to_open
        ]
        led = [
            TopicPartition(*at)
            for at, each in self._by_name.items()
            if each.is_recovering or each.is_deleted or each.log.failure is not None
        ]
        return [*led, *unled]

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Returns the offline partitions with the disk's reason. One that is still being recovered
        has none yet."""
        reasons = {at: self.why_unserved(*at) for at in self.unserved}
        return {at: reason for at, reason in reasons.items() if reason}

    def why_unserved(self, topic: str | bytes, index: int) -> str | None:
        """Returns the disk's last error about a partition that should be served here."""
        if self.why_not_led(topic, index) is not ErrorCode.KAFKA_STORAGE_ERROR:
            return None
        at = (self.topic_name(topic), index)
        partition = self._by_name.get(at)
        failure = None if partition is None else partition.log.failure
        return self._reasons.get(at) or failure

    def note_failure(self, at: TopicPartition, error: Exception) -> None:
        """Logs a failure, once as long as it stays the same."""
        self.has_failed.set()
        if self._reasons.get(at) != str(error):
            self._reasons[at] = str(error)
            logger.error("%s-%d is offline: %s", *at, error)

    def lead(self, at: TopicPartition, *, instead_of: Partition | None = None) -> None:
        """Opens and leads the partitions that belong here and are not open, and leads those that
        were opened again."""
        topic = self.image.topic(at.topic)
        if topic is not None and at.partition in topic.partitions:
            self._lead(topic, topic.partitions[at.partition], instead_of)

    async def lead_again(self, failed: Partition, log: PartitionLog) -> None:
        """Replaces a failed partition by the newly opened one."""
        if failed.topic == METADATA_TOPIC:
            state_log = PartitionStateLog(self._enter_metadata(log), self.clock)
            await self.metadata.go_on_with(state_log)
        else:
            self.lead(TopicPartition(failed.topic, failed.index), instead_of=failed)
        failed.wake()

    async def finish_recovery(self, partition: Partition) -> None:
        """Serves the partition once the coordinators have loaded it."""
        assert self._coordination is not None, "the broker is open"
        await self._coordination.on_recovered(partition)
        if not partition.is_offline:
            partition.begin_epoch()
            self._reasons.pop((partition.topic, partition.index), None)

    async def finish_transactions(self) -> None:
        """Ends transactions that waited for a partition that is back or deleted."""
        assert self._coordination is not None, "the broker is open"
        await self._coordination.finish_transactions()

    def _list_unled(self) -> Iterator[tuple[Topic, PartitionRecord]]:
        for topic in self.image.topics.values():
            for record in topic.partitions.values():
                if (
                    record.leader == self.node_id
                    and (topic.name, record.partition) not in self._by_name
                ):
                    yield topic, record

    def _lead_in_turns(
        self, unled: Sequence[tuple[Topic, PartitionRecord]]
    ) -> Coroutine[None, None, None]:
        """Returns what opens the partitions without holding up the loop for long."""
        self._to_open |= {(topic.name, record.partition) for topic, record in unled}
        return self._open_in_turns(unled)

    async def _open_in_turns(self, unled: Sequence[tuple[Topic, PartitionRecord]]) -> None:
        time = asyncio.get_running_loop().time
        turn_end_s = time() + TURN_S
        try:
            for topic, record in unled:
                if time() >= turn_end_s:
                    await asyncio.sleep(0)
                    turn_end_s = time() + TURN_S
                self._to_open.discard((topic.name, record.partition))
                self._try_to_lead(topic, record)
        finally:  # after an unexpected error the recovery of partitions opens the rest
            self._to_open -= {(topic.name, record.partition) for topic, record in unled}

    def _try_to_lead(self, topic: Topic, record: PartitionRecord) -> None:
        """Tries to open a partition. A topic exists once its metadata is committed; if the disk
        cannot open a partition, that one stays offline."""
        try:
            self._lead(topic, record)
        except (OSError, HeadwaterError) as error:
            self.note_failure(TopicPartition(topic.name, record.partition), error)

    def _lead_metadata(self) -> Partition:
        return self._enter_metadata(
            self.store.open_partition(
                METADATA_TOPIC, 0, topic_id=METADATA_ID, config=METADATA_LOG_CONFIG
            )
        )

    def _enter_metadata(self, log: PartitionLog) -> Partition:
        replica = ReplicaKey(self.node_id, decode_uuid(self.store.directory_id))
        self.quorum = MetadataQuorum(
            log, self.store.files, replica, clock=self.clock, random=self._random
        )
        return self._add(Partition(METADATA_ID, log, self.quorum, self.committer))

    def _lead(
        self, topic: Topic, record: PartitionRecord, instead_of: Partition | None = None
    ) -> None:
        if record.leader != self.node_id:
            return
        config = self.configs.log_config(topic.config, partition=record.partition)
        log = self.store.partitions.get(TopicPartition(topic.name, record.partition))
        if log is None:
            log = self.store.open_partition(
                topic.name, record.partition, topic_id=topic.topic_id, config=config
            )
        min_in_sync = self.configs.min_in_sync(topic.config)
        partition = self._enter(
            topic.topic_id,
            log,
            record,
            min_in_sync=min_in_sync,
            is_recovering=log.end_offset > 0 or instead_of is not None,
        )
        if instead_of is not None:
            partition.take_over(instead_of)
        self._reasons.pop((topic.name, record.partition), None)
        if self._coordination is not None and partition.is_served:
            self._coordination.on_led(partition)

    def _enter(
        self,
        topic_id: UUID,
        log: PartitionLog,
        record: PartitionRecord,
        *,
        min_in_sync: int,
        is_recovering: bool = False,
    ) -> Partition:
        leader = Leader(
            broker_id=self.node_id,
            leader_epoch=record.leader_epoch,
            replicas=record.replicas,
            in_sync=frozenset(record.in_sync),
            partition_epoch=record.partition_epoch,
            end_offset=log.end_offset,
            min_in_sync=min_in_sync,
            started_ms=self.clock.monotonic_ms(),
        )
        partition = Partition(topic_id, log, leader, self.committer)
        partition.is_recovering = is_recovering
        if not is_recovering:
            partition.begin_epoch()
        return self._add(partition)

    def _add(self, partition: Partition) -> Partition:
        partition.on_durable()
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[partition.topic_id.bytes, partition.index] = partition
        return partition

    def _follow(self, changes: MetadataChanges) -> Coroutine[None, None, None]:
        """Applies a change of the cluster's metadata, at once but for the opening of new
        partitions, which it returns."""
        for topic_id, topic in changes.topics_removed.items():
            for index in topic.partitions:
                self._drop(topic.name, topic_id, index)
            if self._coordination is not None:
                self._coordination.on_removed(topic)
        added = []
        for (topic_id, _), record in changes.partitions_added.items():
            known = self.image.topic_by_id(topic_id)
            assert known is not None, "an added partition belongs to a topic"
            added.append((known, record))
        led = [(topic, record) for topic, record in added if record.leader == self.node_id]
        self.store.announce(TopicPartition(topic.name, each.partition) for topic, each in led)
        for (topic_id, index), record in changes.partitions_changed.items():
            partition = self._by_id.get((topic_id.bytes, index))
            known = self.image.topic_by_id(topic_id)
            if partition is not None and known is not None:
                min_in_sync = self.configs.min_in_sync(known.config)
                now_ms = self.clock.monotonic_ms()
                partition.on_record(record, min_in_sync=min_in_sync, now_ms=now_ms)
        for topic in changes.configs_changed.values():
            self._configure(topic)
        return self._lead_in_turns(led)

    def _drop(self, name: str, topic_id: UUID, index: int) -> None:
        partition = self._by_name.pop((name, index), None)
        self._by_id.pop((topic_id.bytes, index), None)
        self._reasons.pop((name, index), None)
        if partition is not None:
            partition.close_waiters()
        try:
            removal = self.store.delete_partition(name, index)
        except (OSError, StorageFailed) as error:  # the others must be removed all the same
            logger.error("%s-%d is not removed: %s", name, index, error)
            return
        if removal is not None:
            self.committer.run_aside(removal.run)

    def _configure(self, topic: Topic) -> None:
        for index in topic.partitions:
            partition = self._by_name.get((topic.name, index))
            if partition is not None:
                partition.log.config = self.configs.log_config(topic.config, partition=index)
                partition.on_min_in_sync(self.configs.min_in_sync(topic.config))

    def _after_round(self, partitions: Sequence[Partition]) -> None:
        online = [each.log for each in partitions if not each.is_offline]
        self.store.write_recovery_points(online)
        if len(online) < len(partitions):
            self.has_failed.set()

    def end_waits(self) -> None:
        """Answers waiting fetches with the records there are, so that a stop need not wait for
        them."""
        self.is_stopping = True
        for partition in self.partitions:
            partition.wake()

    def find_led(self, topic: str | bytes, index: int) -> Partition | None:
        """Returns the partition of that topic, by name or id, if this broker leads and serves
        it."""
        if isinstance(topic, str):
            found = self._by_name.get((topic, index))
        else:
            found = self._by_id.get((topic, index))
        return found if found is not None and found.is_served else None

    def partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition for the coordinators, which write even if it is not served yet."""
        return self._by_name.get((topic, index))

    def why_not_led(self, topic: str | bytes, index: int) -> ErrorCode:
        if topic in (METADATA_TOPIC, METADATA_ID.bytes):
            return ErrorCode.KAFKA_STORAGE_ERROR if index == 0 else NO_PARTITION
        if isinstance(topic, str):
            known = self.image.topic(topic)
        else:
            known = self.image.topic_by_id(UUID(bytes=topic))
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if known is None or index not in known.partitions:
            return NO_PARTITION
        is_opening = (known.name, index) in self._to_open
        if known.partitions[index].leader == self.node_id and not is_opening:
            return ErrorCode.KAFKA_STORAGE_ERROR  # see `PartitionRecovery`
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def topic_name(self, topic: str | bytes) -> str:
        """Returns the name of a topic that is led here."""
        if isinstance(topic, str):
            return topic
        # the metadata's own topic, which its records do not describe
        if topic == METADATA_ID.bytes:
            return METADATA_TOPIC
        known = self.image.topic_by_id(UUID(bytes=topic))
        assert known is not None, "a led partition's topic is known"
        return known.name

    def is_internal(self, topic: str | bytes) -> bool:
        name = topic if isinstance(topic, str) else self.topic_name(topic)
        return name in INTERNAL_TOPICS or name == METADATA_TOPIC

    async def create_unknown(self, name: str, *, may_create: bool) -> ErrorCode:
        """Creates an unknown topic that a client asked for; returns NONE once it exists."""
        if name == METADATA_TOPIC:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_wanted = name in INTERNAL_TOPICS or (may_create and self.settings.auto_create_topics)
        if not is_wanted:
            return self.controller.unknown_topic_code(name)
        created = await self.metadata.change(
            lambda: self.controller.create_topics([self.controller.topic_on_demand(name)])
        )
        outcome = created[name]
        if isinstance(outcome, Topic) or outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return ErrorCode.NONE
        return outcome.code

    async def allocate_producer_ids(self) -> range:
        block = await self.metadata.change(
            lambda: self.controller.allocate_producer_ids(self.node_id, self.broker_epoch)
        )
        if not isinstance(block, ProducerIdBlock):
            raise LogUnavailable("the controller gives no producer ids", code=block.code.name)
        return range(block.first, block.first + block.count)

    def abandon(self) -> None:
        """Gives up the directory without syncing, after a failed start."""
        if self._coordination is not None:
            self._coordination.abandon()
        self.store.close(clean=False)

    async def close(self) -> None:
        """Syncs and closes everything, and marks the stop as clean if nothing is left to do."""
        is_settled = True
        await self.metadata.finish_applying()
        if self._coordination is not None:
            try:
                await self._coordination.close()
            except HeadwaterError as error:
                logger.error("transactions are left to the next start: %s", error)
                is_settled = False
        await self.committer.close()
        self.store.close(clean=is_settled)
        self._by_name.clear()  # a file is closed with its last reference
        self._by_id.clear()
