"""Group commit: one sync serves all requests that wait for the disk at that moment."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import NamedTuple

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.storage.partition_log import SyncJob

logger = logging.getLogger(__name__)
SYNC_THREADS = 8
HELD_UP_S = 0.1
"""Seconds before the retry of a sync for which the disk had no space."""
HANGS_S = 2.5
"""A disk that has not synced for so long hangs, as far as others are concerned who could go on."""
QUICK_S, QUICK_PARTITIONS_MAX = 0.001, 4
"""A few partitions on a disk that was quick last time are synced without threads: waking a thread
takes longer than such a disk does. A disk that becomes slow blocks the loop once."""


class GroupCommit:
    """Syncs written partitions in rounds. While one round runs, writes gather for the next. A round
    starts at once if a request waits, else within `flush_wait_ms_max`."""

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
        self._aside = dict[asyncio.Future[None], None]()
        self._written: dict[Partition, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._is_due = self._is_closed = False
        self._slowest_s = inf  # sync of the last round
        self._began_s = inf  # of the round under way

    def note_write(self, partition: Partition, *, is_urgent: bool) -> None:
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
            self._timer = loop.call_later(self._flush_wait_s, self._on_time)

    def goes_along(self, partition: Partition) -> None:
        """The partition needs no sync of its own: the next round includes it, whoever starts the
        round."""
        if self._syncs and not self._is_closed:
            self._written[partition] = None
        else:
            self.note_write(partition, is_urgent=False)

    @property
    def hangs(self) -> bool:
        """Whether the disk has not returned from a round of syncs for too long."""
        return asyncio.get_running_loop().time() - self._began_s > HANGS_S

    def hurry(self) -> None:
        """Starts a round because a request is about to wait for a recent write: a quick disk has it
        by then."""
        if self._syncs and self._is_quick and self._written:
            self._start_soon()

    @property
    def _is_quick(self) -> bool:
        return self._slowest_s < QUICK_S and len(self._written) <= QUICK_PARTITIONS_MAX

    def _start_soon(self) -> None:
        """Starts after this turn of the loop, so that requests arriving together share the
        round."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_due:
            self._is_due = True
            if self._round is None:
                asyncio.get_running_loop().call_soon(self._start)

    def _on_time(self) -> None:
        """Starts a round that no request waits for, and that delays none."""
        self._timer, self._is_due = None, True
        self._start_aside()

    def _start_aside(self) -> None:
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._run())

    def _start(self) -> None:
        if self._round is not None or not self._is_due or self._is_closed:
            return
        if not self._is_quick:
            self._start_aside()
            return
        partitions, time = self._gather(), asyncio.get_running_loop().time
        with self._making_up_for(partitions):
            jobs = self._jobs(partitions)
            if len(jobs) > 1:
                for _, job in jobs:
                    job.begin()
            self._on_synced(
                partitions,
                [self._on_ended(partition, job, run_job(job, time)) for partition, job in jobs],
            )

    async def _run(self) -> None:
        try:
            while self._is_due:
                partitions = self._gather()
                with self._making_up_for(partitions):
                    await self._sync(partitions)
        finally:
            self._round = None

    def _gather(self) -> Sequence[Partition]:
        """Returns the partitions of the round that begins now."""
        self._is_due = False
        partitions = list(self._written)
        self._written.clear()
        return partitions

    @contextmanager
    def _making_up_for(self, partitions: Sequence[Partition]) -> Iterator[None]:
        """After an unexpected end of a round nothing of it is trusted; the next one syncs it
        again."""
        try:
            yield
        except Exception:
            logger.exception("a round of syncs ended unexpectedly")
            self._written.update(dict.fromkeys(partitions))
            asyncio.get_running_loop().call_later(HELD_UP_S, self._start_soon)

    async def _sync(self, partitions: Sequence[Partition]) -> None:
        loop, jobs = asyncio.get_running_loop(), self._jobs(partitions)
        running = [loop.run_in_executor(self._threads, run_job, job, loop.time) for _, job in jobs]
        self._began_s = loop.time()
        try:
            seconds = [
                self._on_ended(partition, job, await outcome)
                for (partition, job), outcome in zip(jobs, running, strict=True)
            ]
        finally:
            self._began_s = inf
        self._on_synced(partitions, seconds)

    def _jobs(self, partitions: Sequence[Partition]) -> list[tuple[Partition, SyncJob]]:
        for partition in partitions:
            if partition.is_offline:  # its waiters learn that the sync will not come
                partition.wake()
        return [(p, p.log.sync_job()) for p in partitions if not p.is_offline]

    def _on_ended(self, partition: Partition, job: SyncJob, outcome: "SyncResult") -> float:
        """Ends the round; returns how long the disk took, 0 if there was nothing to sync."""
        if outcome.error is None:
            partition.log.finish_sync(job)
            if job.is_held_up:
                again = partial(self.note_write, partition, is_urgent=True)
                asyncio.get_running_loop().call_later(HELD_UP_S, again)
        else:
            logger.error("%s-%d is offline: %s", partition.topic, partition.index, outcome.error)
            partition.log.sync_failed(outcome.error)
        partition.on_durable()
        return 0.0 if job.is_empty else outcome.seconds

    def _on_synced(self, partitions: Sequence[Partition], seconds: Sequence[float]) -> None:
        self._slowest_s = max(seconds, default=0.0) or self._slowest_s
        self._after_round(partitions)

    def run_aside(self, work: Callable[[], None]) -> None:
        """Runs slow work in a thread, on files that nothing else uses any more."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._aside[running] = None
        running.add_done_callback(self._on_aside_ended)

    def _on_aside_ended(self, ended: "asyncio.Future[None]") -> None:
        del self._aside[ended]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            logger.warning("the next start removes what is left of a partition: %s", error)

    async def close(self) -> None:
        """Syncs the remaining writes, then stops."""
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            await self._round
        if self._aside:
            await asyncio.wait(list(self._aside))
        if self._syncs and self._written:
            await self._sync(list(self._written))
        self._is_closed = True
        self._threads.shutdown()


class SyncResult(NamedTuple):
    """Result of one job: its error, and how long the disk took."""

    error: OSError | StorageFailed | None
    seconds: float


def run_job(job: SyncJob, time: Callable[[], float]) -> SyncResult:
    """Runs a job, usually in a thread: it uses only the state that the job captured."""
    begun, error = time(), None
    try:
        job.run()
    except (OSError, StorageFailed) as failure:
        error = failure
    return SyncResult(error, time() - begun)
