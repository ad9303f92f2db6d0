"""One broker: its storage, the partitions it leads, and the cluster's metadata, wired together."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random
from uuid import UUID

from headwater.core_log.broker.batch_contents import Scratch
from headwater.core_log.broker.coordination import Coordination, PartitionStateLog
from headwater.core_log.broker.dispatch import ServedApi
from headwater.core_log.broker.group_commit import GroupCommit
from headwater.core_log.broker.metadata_quorum import MetadataQuorum
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.replica_fetcher import Leaders
from headwater.core_log.broker.replicas import METADATA_ID, Replicas
from headwater.core_log.broker.transaction_markers import TransactionMarkers
from headwater.core_log.broker.transaction_verification import TransactionVerifier
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.groups.group_coordinator import GroupCoordinator
from headwater.core_log.groups.transaction_coordinator import TransactionCoordinator
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.controller import FEATURES, Controller
from headwater.core_log.replication.decisions import ProducerIdBlock
from headwater.core_log.replication.metadata import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    MetadataImage,
    Topic,
)
from headwater.core_log.replication.metadata_log import METADATA_LOG_CONFIG, MetadataLog
from headwater.core_log.replication.snapshots import MetadataSnapshots
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.replication.voters import ReplicaKey
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.properties import decode_uuid
from headwater.core_log.storage.store import Store

logger = logging.getLogger(__name__)


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
        self.peers: Leaders | None = None
        """The other brokers of the cluster."""
        self.replicas = Replicas(self)
        self.find_led = self.replicas.find_led
        self.coordination: Coordination | None = None
        metadata_partition = self._lead_metadata()
        self.metadata = MetadataLog(
            PartitionStateLog(metadata_partition, clock),
            MetadataSnapshots(store.files, metadata_partition.log.directory),
            self.replicas.apply,
        )
        self.controller = Controller(
            self.metadata.image,
            self.configs,
            default_partitions=settings.default_partitions,
            internal_partitions=settings.internal_partitions,
            new_id=self._new_id,
        )

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether that is another broker's present registration."""
        known = self.image.brokers.get(broker_id)
        return known is not None and known.broker_epoch == broker_epoch

    @property
    def groups(self) -> GroupCoordinator:
        assert self.coordination is not None, "requests are served once the broker is open"
        self.coordination.note_use()
        return self.coordination.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        assert self.coordination is not None, "requests are served once the broker is open"
        self.coordination.note_use()
        return self.coordination.transactions

    @property
    def markers(self) -> TransactionMarkers:
        assert self.coordination is not None, "requests are served once the broker is open"
        return self.coordination.markers

    @property
    def verifier(self) -> TransactionVerifier:
        assert self.coordination is not None, "requests are served once the broker is open"
        return self.coordination.verifier

    @property
    def has_short_cuts(self) -> bool:
        """Whether transactions take the short cuts of a log with one broker (decision 7)."""
        coordination = self.coordination
        return self.image.has_short_cuts if coordination is None else coordination.has_short_cuts

    async def end_short_cuts(self) -> None:
        """Called before a second broker is registered. Raises if that must wait."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.end_short_cuts()

    @property
    def partitions(self) -> Sequence[Partition]:
        """All partitions that this broker leads, including the cluster's metadata."""
        return self.replicas.led

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
        await self.replicas.open()
        self.store.report_strays()
        self.coordination = Coordination(self, self._random)
        await self.coordination.load()

    @property
    def unserved(self) -> Sequence[TopicPartition]:
        """Returns the partitions that should be served here and are not, because the disk failed or
        cannot open them."""
        return self.replicas.unserved

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Returns the offline partitions with the disk's reason. One that is still being recovered
        has none yet."""
        reasons = {at: self.why_unserved(*at) for at in self.unserved}
        return {at: reason for at, reason in reasons.items() if reason}

    def why_unserved(self, topic: str | bytes, index: int) -> str | None:
        """Returns the disk's last error about a partition that should be served here."""
        return self.replicas.why_unserved(topic, index)

    def note_failure(self, at: TopicPartition, error: Exception) -> None:
        """Logs a failure, once as long as it stays the same."""
        self.replicas.note_failure(at, error)

    async def take_back(self, failed: Partition, log: PartitionLog) -> None:
        """Replaces a failed partition by the newly opened one."""
        if failed.topic == METADATA_TOPIC:
            state_log = PartitionStateLog(self._enter_metadata(log), self.clock)
            await self.metadata.go_on_with(state_log)
        else:
            at = TopicPartition(failed.topic, failed.index)
            self.replicas.settle(at, instead_of=failed)
        failed.wake()

    async def finish_recovery(self, partition: Partition) -> None:
        """Serves the partition once the coordinators have loaded it."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.on_recovered(partition)
        if not partition.is_offline:
            partition.begin_epoch()
            self.replicas.forget_failure(partition)

    async def finish_transactions(self) -> None:
        """Ends transactions that waited for a partition that is back or deleted."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.finish_transactions()

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
        return self.replicas.add(Partition(METADATA_ID, log, self.quorum, self.committer))

    def _after_round(self, partitions: Sequence[Partition]) -> None:
        online = [each for each in partitions if not each.is_offline]
        self.store.write_recovery_points(each.log for each in online)
        self.store.write_high_watermarks(
            (each.log, each.high_watermark) for each in online if each.is_replicated
        )
        if len(online) < len(partitions):
            self.replicas.has_failed.set()

    def end_waits(self) -> None:
        """Answers waiting fetches with the records there are, so that a stop need not wait for
        them."""
        self.is_stopping = True
        for partition in self.partitions:
            partition.wake()
            partition.wake_followers()

    def partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition that is led here, for the coordinators, which write even if it is not
        served yet."""
        found = self.replicas.replica(topic, index)
        return found if found is not None and found.leader is not None else None

    def why_not_led(self, topic: str | bytes, index: int) -> ErrorCode:
        return self.replicas.why_not_led(topic, index)

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
        self.replicas.fetchers.stop()
        if self.coordination is not None:
            self.coordination.abandon()
        self.store.close(clean=False)

    async def close(self) -> None:
        """Syncs and closes everything, and marks the stop as clean if nothing is left to do."""
        is_settled = True
        await self.metadata.finish_applying()
        await self.replicas.close()
        if self.coordination is not None:
            try:
                await self.coordination.close()
            except HeadwaterError as error:
                logger.error("transactions are left to the next start: %s", error)
                is_settled = False
        await self.committer.close()
        self.store.close(clean=is_settled)
        self.replicas.clear()
