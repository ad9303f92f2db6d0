"""What a broker does by itself from time to time: retention, compaction, snapshots, expiries."""

import asyncio
import logging
from typing import TYPE_CHECKING

from core_log.broker.cleaner import Cleaner
from core_log.errors import HeadwaterError

if TYPE_CHECKING:
    from core_log.broker.broker import Broker

logger = logging.getLogger(__name__)


class Housekeeping:
    """One round after another, each partition in turn, so that the loop is never held up long."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._cleaner = Cleaner(broker)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._broker.settings.housekeeping_interval_ms / 1000)
            try:
                await self.round()
            except HeadwaterError as error:
                logger.error("housekeeping: %s", error)

    async def round(self) -> None:
        """Everything that is due now."""
        broker = self._broker
        now_ms = broker.clock.now_ms()
        for partition in broker.partitions:
            if partition.is_offline:
                continue
            try:
                removal = partition.log.apply_retention(now_ms, below=partition.high_watermark)
                if removal is not None:
                    await asyncio.to_thread(removal.run)
                partition.log.producers.expire(now_ms)
            except HeadwaterError as error:
                logger.error("%s-%d: %s", partition.topic, partition.index, error)
            await asyncio.sleep(0)
        await broker.metadata.snapshot_if_grown(now_ms=now_ms)
        await self._cleaner.clean_dirtiest(now_ms)
