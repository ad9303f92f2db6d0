"""Partitions that the disk has failed come back from it without a restart."""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.metadata import METADATA_TOPIC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
RECOVERY_INTERVAL_MS = 250
PAUSE_MS_MAX = 30_000


@dataclass(slots=True)
class Pause:
    """How long a partition that did not come back is left alone; each time twice as long."""

    until_ms: int
    length_ms: int


class PartitionRecovery:
    """Opens anew what the disk has failed, and opens what it did not let be opened. A damaged
    partition is looked at again too, since somebody may put back its files.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._pauses: dict[TopicPartition, Pause] = {}
        self._at_work = asyncio.Lock()

    @property
    def is_done(self) -> bool:
        """Whether the last look found nothing to bring back."""
        return not self._pauses

    async def recover(self, now_ms: int) -> None:
        """One look at everything that is not served; the cluster's metadata comes first."""
        async with self._at_work:
            await self._recover(now_ms)

    async def _recover(self, now_ms: int) -> None:
        unserved = self._broker.unserved
        self._pauses = {at: each for at, each in self._pauses.items() if at in unserved}
        for at in unserved:
            pause = self._pauses.get(at)
            if pause is None or pause.until_ms <= now_ms:
                await self._try(at, now_ms)
        await self._broker.finish_transactions()
        self._broker.store.keep_reserve()

    async def _try(self, at: TopicPartition, now_ms: int) -> None:
        last = self._pauses.get(at)
        length_ms = min(last.length_ms * 2, PAUSE_MS_MAX) if last else RECOVERY_INTERVAL_MS
        self._pauses[at] = Pause(now_ms + length_ms, length_ms)
        try:
            await self._bring_back(at)
        except (OSError, HeadwaterError) as error:
            self._broker.note_failure(at, error)

    async def _bring_back(self, at: TopicPartition) -> None:
        partition = self._broker.partition(*at)
        if partition is None:
            self._broker.lead(at)
        elif partition.is_offline:
            await self._reopen(partition)
        partition = self._broker.partition(*at)
        if partition is not None and partition.is_recovering:
            await self._broker.finish_recovery(partition)
        if partition is not None and partition.is_served:
            end_offset = partition.log.end_offset
            logger.warning("%s-%d is back, and goes on at offset %d", *at, end_offset)

    async def _reopen(self, failed: Partition) -> None:
        store = self._broker.store
        if failed.topic == METADATA_TOPIC:
            store.spend_reserve()  # nothing can be deleted to make room before it is back
        with store.renewing(failed.log) as renewal:
            await asyncio.to_thread(renewal.run)
            if failed.is_deleted:
                return
            log = store.reopen_partition(failed.topic, failed.index)
        await self._broker.lead_again(failed, log)
