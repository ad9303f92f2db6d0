"""What a broker does by itself from time to time: retention, compaction, recovery."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headwater.core_log.broker.log_cleaner import LogCleaner
from headwater.core_log.broker.partition_recovery import RECOVERY_INTERVAL_MS, PartitionRecovery
from headwater.core_log.foundation.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
LOOK_S = 5.0
"""How often partitions are looked at though no failure was told of."""


class PeriodicTasks:
    """Three loops: a long compaction must not keep old segments from going, and neither of them a
    partition from coming back."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.cleaner = LogCleaner(broker)
        self.recovery = PartitionRecovery(broker)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        pause_ms = self._broker.settings.housekeeping_interval_ms
        create_task = asyncio.get_running_loop().create_task
        for work in (self.tidy, self.cleaner.clean_what_is_due):
            self._tasks.append(
                create_task(self._repeat(work, partial(asyncio.sleep, pause_ms / 1000)))
            )
        self._tasks.append(create_task(self._repeat(self.recovery.recover, self._until_failed)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_failed(self) -> None:
        """Most failures are told of. While one is left, they are looked at again and again."""
        await asyncio.sleep(RECOVERY_INTERVAL_MS / 1000)
        if self.recovery.is_done:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._broker.has_failed.wait()
        self._broker.has_failed.clear()

    async def _repeat(
        self, work: Callable[[int], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await pause()
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
