"""What a broker does by itself from time to time: retention, compaction, recovery."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from core_log.broker.cleaner import Cleaner
from core_log.broker.partition_recovery import RECOVERY_INTERVAL_MS, PartitionRecovery
from core_log.errors import HeadwaterError

if TYPE_CHECKING:
    from core_log.broker.broker import Broker

logger = logging.getLogger(__name__)


class Housekeeping:
    """Three loops: a long compaction must not keep old segments from going, and neither of them a
    partition from coming back."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.cleaner = Cleaner(broker)
        self.recovery = PartitionRecovery(broker)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        pause_ms = self._broker.settings.housekeeping_interval_ms
        for work, every_ms in (
            (self.tidy, pause_ms),
            (self.cleaner.clean_what_is_due, pause_ms),
            (self.recovery.recover, RECOVERY_INTERVAL_MS),
        ):
            self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(work, every_ms)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _repeat(self, work: Callable[[int], Awaitable[None]], every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            try:
                await work(self._broker.clock.now_ms())
            except (HeadwaterError, OSError) as error:  # the latter for want of files, say
                logger.error("housekeeping: %s", error)

    async def tidy(self, now_ms: int) -> None:
        """Each partition in turn, so that the loop is never held up for long."""
        for partition in self._broker.partitions:
            if not partition.is_served:
                continue
            try:
                removal = partition.log.apply_retention(now_ms, below=partition.high_watermark)
                if removal is not None:
                    await asyncio.to_thread(removal.run)
                partition.log.producers.expire(now_ms)
            except HeadwaterError as error:
                logger.error("%s-%d: %s", partition.topic, partition.index, error)
            await asyncio.sleep(0)
        await self._broker.metadata.snapshot_if_grown(now_ms=now_ms)
