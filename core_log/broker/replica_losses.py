"""Tells the controller which replicas here have lost records, before one of them may lead, and lets
them be copied anew."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.inter_broker_messages import (
    MemberRegistrationRequest,
    ReplicaLoss,
)
from headwater.core_log.replication.elections import Losses
from headwater.core_log.replication.metadata import MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    FIRST_VERSION,
    METADATA_FEATURE,
    Doubt,
    PartitionRecord,
    metadata_version_of,
)
from headwater.core_log.storage.properties import Loss

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)


class ReplicaLosses:
    """The losses that the store has found, as far as other brokers have replicas, too: a partition
    with one replica leaves nothing to decide."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._told: set[TopicPartition] = set()
        self._work: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Tells what was found meanwhile; the caller has other work."""
        if self._broker.store.losses and (self._work is None or self._work.done()):
            self._work = asyncio.get_running_loop().create_task(self._try_to_tell())

    async def _try_to_tell(self) -> None:
        try:
            await self.tell()
        except HeadwaterError as error:
            logger.error("lost records are not reported to the controller yet: %s", error)

    def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def list(self) -> list[ReplicaLoss]:
        """Returns what a registration says."""
        return [self._describe(at, topic, each) for at, topic, each in self._replicated()]

    def _replicated(self) -> Iterator[tuple[TopicPartition, Topic, PartitionRecord]]:
        broker = self._broker
        for at in sorted(broker.store.losses):
            topic, record = broker.image.topic(at.topic), broker.image.partition(*at)
            is_here = record is not None and broker.node_id in record.replicas
            if topic is not None and record is not None and is_here and len(record.replicas) > 1:
                yield at, topic, record

    def _describe(self, at: TopicPartition, topic: Topic, record: PartitionRecord) -> ReplicaLoss:
        store = self._broker.store
        log = store.partitions.get(at)
        if log is None or store.losses[at] is Loss.CERTAIN:
            return ReplicaLoss(topic_id=topic.topic_id, partition=record.partition, is_certain=True)
        return ReplicaLoss(
            topic_id=topic.topic_id,
            partition=record.partition,
            last_epoch=log.last_epoch,
            end_offset=log.end_offset,
        )

    async def tell(self) -> None:
        """Registers again if something was found that the controller does not know."""
        broker = self._broker
        replicated = {at for at, _, _ in self._replicated()}
        self._told &= replicated
        if replicated - self._told:
            for at in sorted(replicated - self._told):
                logger.warning("%s-%d has lost records: the controller is told", *at)
            broker.broker_epoch = await broker.member.register()
            await broker.metadata.wait_applied(broker.broker_epoch + 1)
            self._told |= replicated
        self._settle()

    def _settle(self) -> None:
        """Forgets what is decided by now."""
        broker = self._broker
        for at, loss in list(broker.store.losses.items()):
            record = broker.image.partition(*at)
            if record is None or broker.node_id not in record.replicas:
                continue
            is_open = at in broker.store.partitions
            if len(record.replicas) == 1:
                if is_open:
                    broker.store.forget_loss(at)
            elif at in self._told and loss is Loss.DOUBTFUL:
                broker.store.forget_loss(at)
            elif at in self._told and _have_more(record, broker.node_id):
                aside = broker.store.set_damaged_aside(at)
                left = f"; what is left of it is in {aside}" if aside else ""
                logger.warning("%s-%d is copied anew%s", *at, left)
                broker.replicas.begin_anew(at)


def _have_more(record: PartitionRecord, broker_id: int) -> bool:
    """Whether other replicas have what this one lacks, and it is not counted upon."""
    doubtful = (each.broker_id for each in record.doubtful)
    complete = {*record.in_sync, *record.eligible, *doubtful}
    return bool(complete) and broker_id not in complete


def losses_in(
    request: MemberRegistrationRequest,
    image: MetadataImage,
    *,
    has_new_disk: bool,
) -> Losses:
    """Returns what a registration says. Doubts that older brokers cannot read about are losses."""
    known = image.brokers.get(request.broker_id)
    was_alive = known is not None and (known.is_over or not known.is_fenced)
    is_older_copy = (
        known is not None and was_alive and 0 <= request.previous_broker_epoch < known.broker_epoch
    )
    version = image.features.get(METADATA_FEATURE, FIRST_VERSION)
    may_doubt = version >= metadata_version_of("partition-change", 4)
    certain, doubtful = set(), {}
    for each in request.losses:
        at = (each.topic_id, each.partition)
        if each.is_certain or not may_doubt:
            certain.add(at)
        else:
            doubtful[at] = Doubt(request.broker_id, each.last_epoch, each.end_offset)
    return Losses(certain, doubtful, has_new_disk=has_new_disk, is_older_copy=is_older_copy)
