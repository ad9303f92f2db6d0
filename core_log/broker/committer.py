"""Group commit: one sync serves everybody who waits for the disk at that moment."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from core_log.broker.partition import Partition
from core_log.errors import StorageFailed
from core_log.storage.partition_log import SyncJob

logger = logging.getLogger(__name__)
SYNC_THREADS = 8
HELD_UP_S = 0.1
"""When a sync for which there was no room is tried again."""


class Committer:
    """Syncs written partitions in rounds. While one round runs, what is written gathers for the
    next; a round starts at once when somebody waits, else within `flush_wait_ms_max`.
    """

    def __init__(
        self,
        *,
        syncs: bool,
        flush_wait_ms_max: int,
        after_round: Callable[[Sequence[Partition]], None],
    ) -> None:
        self._syncs, self._flush_wait_s = syncs, flush_wait_ms_max / 1000
        self._after_round = after_round
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        self._written: dict[Partition, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._is_due = self._is_closed = False

    def written(self, partition: Partition, *, is_urgent: bool) -> None:
        if self._is_closed:
            return
        if not self._syncs:
            partition.log.trust_written()
            asyncio.get_running_loop().call_soon(partition.on_durable)
            return
        self._written[partition] = None
        if is_urgent:
            self._start_soon()
        elif self._timer is None and not self._is_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._flush_wait_s, self._start_soon)

    def goes_along(self, partition: Partition) -> None:
        """What was written there needs no sync of its own: the next round takes it along, whoever
        asks for that."""
        if self._syncs and not self._is_closed:
            self._written[partition] = None
        else:
            self.written(partition, is_urgent=False)

    def _start_soon(self) -> None:
        """After this turn of the loop, so that requests arriving together share the round."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_due:
            self._is_due = True
            if self._round is None:
                asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        if self._round is None and self._is_due and not self._is_closed:
            self._round = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                partitions = list(self._written)
                self._written.clear()
                try:
                    await self._sync(partitions)
                except Exception:
                    # Nothing of this round is believed; the next one syncs it all again.
                    logger.exception("a round of syncs ended unexpectedly")
                    self._written.update(dict.fromkeys(partitions))
                    asyncio.get_running_loop().call_later(HELD_UP_S, self._start_soon)
        finally:
            self._round = None

    async def _sync(self, partitions: Sequence[Partition]) -> None:
        loop = asyncio.get_running_loop()
        for partition in partitions:
            if partition.is_offline:  # whoever waits for it learns that it is in vain
                partition.wake()
        jobs = [(p, p.log.sync_job()) for p in partitions if not p.is_offline]
        running = [loop.run_in_executor(self._threads, run_job, job) for _, job in jobs]
        for (partition, job), outcome in zip(jobs, running, strict=True):
            error = await outcome
            if error is None:
                partition.log.synced(job)
                if job.is_held_up:
                    loop.call_later(HELD_UP_S, partial(self.written, partition, is_urgent=True))
            else:
                logger.error("%s-%d is offline: %s", partition.topic, partition.index, error)
                partition.log.sync_failed(error)
            partition.on_durable()
        self._after_round(partitions)

    def run_aside(self, work: Callable[[], None]) -> None:
        """Something slow that touches files nobody else refers to any more."""
        self._threads.submit(work)

    async def close(self) -> None:
        """Syncs what is still waiting, then stops."""
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            await self._round
        if self._syncs and self._written:
            await self._sync(list(self._written))
        self._is_closed = True
        self._threads.shutdown()


def run_job(job: SyncJob) -> OSError | StorageFailed | None:
    """In a thread: touches only what the job captured."""
    try:
        job.run()
    except (OSError, StorageFailed) as error:
        return error
    return None
