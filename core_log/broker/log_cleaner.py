"""Compaction, the dirtiest partition first, by a worker process beside the broker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import CorruptLog, HeadwaterError
from headwater.core_log.storage.compaction import (
    Cleanable,
    CompactionRequest,
    CompactionResult,
    LastRecord,
    SegmentFacts,
    Swap,
    cleanable,
    compact,
)
from headwater.core_log.storage.index import NO_TIMESTAMP
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.segment import Segment

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
ANNOUNCEMENT_S_MAX = 5.0
COPY_MS_MAX = 86_400_000
"""A replica whose copy takes longer has to begin anew once deletes are dropped."""
Compact = Callable[[CompactionRequest], Awaitable[CompactionResult]]
"""Runs one compaction outside the event loop."""


class LogCleaner:
    """Compacts one partition at a time: two workers for one partition would write the same files. A
    damaged partition is reported and left alone until the next start."""

    def __init__(self, broker: "Broker", compact: Compact = compact) -> None:
        self._broker, self._compact = broker, compact
        self._at_work = asyncio.Lock()
        self._damaged: set[Partition] = set()
        self._copied_since_ms = WeakKeyDictionary[Partition, int]()

    async def clean_what_is_due(self, now_ms: int) -> None:
        """Compacts until no more is due, each partition at most once."""
        done: set[Partition] = set()
        async with self._at_work:
            while due := self._dirtiest(now_ms, done):
                done.add(due[0])
                await self._clean(*due, now_ms)

    def _dirtiest(self, now_ms: int, done: set[Partition]) -> tuple[Partition, Cleanable] | None:
        """Returns what to compact next; partitions whose files cannot be read count as done."""
        best: tuple[Partition, Cleanable] | None = None
        for partition in self._broker.replicas.all:
            config = partition.log.config
            is_left = partition not in done and partition not in self._damaged
            if not config.is_compacted or not is_left or not partition.is_served:
                continue
            found: Cleanable | None = None
            with self._reporting(partition):
                found = self.what_is_cleanable(partition, now_ms)
            if found is None:
                done.add(partition)
            elif found.is_due(config) and (best is None or found.dirty_ratio > best[1].dirty_ratio):
                best = (partition, found)
        return best

    @contextmanager
    def _reporting(self, partition: Partition) -> Iterator[None]:
        """Context manager: a partition that fails must not keep the others from being compacted."""
        try:
            yield
        except CorruptLog as error:
            self._damaged.add(partition)
            logger.error("%s-%d is not compacted: %s", partition.topic, partition.index, error)
        except (HeadwaterError, OSError) as error:
            logger.error("%s-%d was not compacted: %s", partition.topic, partition.index, error)

    def what_is_cleanable(self, partition: Partition, now_ms: int) -> Cleanable | None:
        log = partition.log
        stable_offset = min(partition.last_stable_offset, log.recovery_point)
        if partition.leader is None:  # not before all in sync have stored it
            stable_offset = min(stable_offset, log.cleaned_to, partition.agreed_to)
        closed = [segment for segment in log.segments if segment is not log.segments.active]
        return cleanable(
            [facts_of(segment) for segment in closed],
            log.config,
            active_offset=log.segments.active.base_offset,
            first_dirty_offset=log.first_dirty_offset,
            stable_offset=stable_offset,
            now_ms=now_ms,
        )

    async def _clean(self, partition: Partition, found: Cleanable, now_ms: int) -> None:
        with self._reporting(partition):
            drops_deletes = self._may_drop_deletes(partition, now_ms)
            request = request_for(partition, found, now_ms, drops_deletes=drops_deletes)
            result = await self._compact(request)
            if not partition.is_offline:
                await self._take_over(partition, found, result)

    def _may_drop_deletes(self, partition: Partition, now_ms: int) -> bool:
        """A follower may not know yet which deletes its leader has dropped. A leader keeps them
        while a replica is copied, since that one would begin anew: it may have the values, and does
        not get their deletes any more."""
        if partition.leader is None:
            return False
        alive = self._broker.image.alive
        if not any(partition.is_copied_to(each) for each in alive):
            self._copied_since_ms.pop(partition, None)
            return True
        return now_ms - self._copied_since_ms.setdefault(partition, now_ms) >= COPY_MS_MAX

    async def _take_over(
        self, partition: Partition, found: Cleanable, result: CompactionResult
    ) -> None:
        """Stores first how far compaction removes records, then replaces the old segments. The
        replicas in sync take these marks before: who leads next then tells no lower ones."""
        log = partition.log
        if partition.leader is None:
            allowed = min(log.cleaned_to, partition.agreed_to)
            if result.cleaned_to > allowed or result.deletes_dropped_to:
                return  # it led, or had another leader, when this pass began
        if result.cleaned_to > log.cleaned_to or result.deletes_dropped_to > log.deletes_dropped_to:
            log.note_cleaned(
                cleaned_to=result.cleaned_to, deletes_dropped_to=result.deletes_dropped_to
            )
        if not await partition.announce_marks(wait_s_max=ANNOUNCEMENT_S_MAX):
            return  # a later pass repeats this one
        for swap in result.swaps:
            if not still_stand(log, found, swap):
                return  # a later pass repeats this one
            removal = log.swap_in(swap.base_offset, swap.end_offset, size=swap.size)
            if result.tombstones_dropped or result.markers_dropped:  # told with the next answer
                partition.drops += 1
            await asyncio.to_thread(removal.run)
            if partition.is_offline:
                return
        log.note_compacted(result.first_dirty_offset)
        if result.unreadable:
            logger.warning(
                "%s-%d: %d batches contradict their headers and stay as they are; "
                "the first begins at offset %d",
                partition.topic,
                partition.index,
                len(result.unreadable),
                result.unreadable[0],
            )
        logger.info(
            "compacted %s-%d: %d of %d records kept, %d of %d bytes",
            partition.topic,
            partition.index,
            result.records_kept,
            result.records,
            result.bytes_after,
            result.bytes_before,
        )


def still_stand(log: PartitionLog, found: Cleanable, swap: Swap) -> bool:
    """Returns whether all segments of a swap are as the worker read them: not deleted, not
    truncated."""
    closed = (segment for segment in log.segments if segment is not log.segments.active)
    sizes = {segment.base_offset: segment.size for segment in closed}
    return all(
        sizes.get(segment.base_offset) == segment.size
        for segment in found.segments
        if swap.base_offset <= segment.base_offset < swap.end_offset
    )


def facts_of(segment: Segment) -> SegmentFacts:
    if segment.first_timestamp is None:  # a restart does not know this of old segments
        _, head = next(segment.heads(), (0, None))
        segment.first_timestamp = NO_TIMESTAMP if head is None else head.max_timestamp
    return SegmentFacts(
        base_offset=segment.base_offset,
        size=segment.size,
        newest_ms=segment.newest_ms,
        oldest_ms=segment.first_timestamp,
        index_size=len(segment.index.file.content),
        time_index_size=len(segment.times.file.content),
    )


def request_for(
    partition: Partition, found: Cleanable, now_ms: int, *, drops_deletes: bool
) -> CompactionRequest:
    log, config = partition.log, partition.log.config
    last_records = {
        producer_id: LastRecord(
            producer.epoch, producer.batches[-1].last_offset if producer.batches else None
        )
        for producer_id, producer in log.producers
    }
    return CompactionRequest(
        directory=str(log.directory),
        segments=found.segments,
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        now_ms=now_ms if drops_deletes else 0,
        delete_retention_ms=config.delete_retention_ms + (0 if drops_deletes else now_ms),
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        aborted=tuple(log.find_aborted(found.segments[0].base_offset, found.end_offset)),
        last_records=last_records,
    )
