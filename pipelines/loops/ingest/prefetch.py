"""Reads a few batches of a source while the log is busy with earlier ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from headwater.core_log.model.changes import ChangeBatch
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.journal.commits import OffsetRange
from headwater.pipelines.loops.ingest.encoder import PartitionBatch

BATCHES_MAX = 2
"""The only queue in the data path; short, since each batch may be large."""


class Prefetch:
    """Hands batches out in order; what ended the source comes after the last of them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChangeBatch | Exception | None] = asyncio.Queue(BATCHES_MAX)

    async def next(self) -> ChangeBatch | None:
        """None when the source has ended and there will never be more."""
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def next_within(self, wait_ms: int) -> ChangeBatch | None:
        """None as well when nothing came in time, and when the source failed: what came before
        can then still be committed, and `next` will tell."""
        try:
            if self._queue.empty() and wait_ms > 0:
                async with asyncio.timeout(
                    wait_ms / 1_000
                ):  # wait_for of 3.11 swallows our own end
                    found = await self._queue.get()
            else:
                found = self._queue.get_nowait()
        except (TimeoutError, asyncio.QueueEmpty):
            return None
        return None if isinstance(found, Exception) else found

    async def fill(self, batches: AsyncGenerator[ChangeBatch, None]) -> None:
        end: Exception | None = None
        try:
            async for batch in batches:
                await self._queue.put(batch)
        except Exception as error:
            end = error
        while True:  # whoever asks again is told again
            await self._queue.put(end)


@asynccontextmanager
async def read_ahead(batches: AsyncGenerator[ChangeBatch, None]) -> AsyncIterator[Prefetch]:
    """Closes the source's iteration before it returns."""
    ahead = Prefetch()
    filling = asyncio.ensure_future(ahead.fill(batches))
    try:
        yield ahead
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        await batches.aclose()


MARKER_RECORDS = 1
"""What the end of a transaction takes in every partition that it wrote to."""

Touched = Mapping[TopicPartition, OffsetRange]


class OffsetMispredicted(Exception):
    """Somebody else appended where records of a transaction were foreseen, which is aborted."""


class OffsetPrediction:
    """Of partitions that only we append to: there one transaction begins where the last ended. A
    partition that somebody else was seen to append to is never foreseen again."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._shared: set[TopicPartition] = set()

    def of(self, landed: Touched, under_way: Iterable[PartitionBatch]) -> Touched | None:
        """What a transaction will have touched once these have landed as well; None where that
        cannot be said."""
        found = dict(landed)
        for partition, batch, is_data in under_way:
            if not is_data:
                continue
            earlier = found.get(partition)
            first = earlier.end if earlier else self._next.get(partition)
            if first is None or partition in self._shared:
                return None
            stretch = stretch_of(batch.record_count, len(batch.data), first)
            found[partition] = earlier.extend_to(stretch) if earlier else stretch
        return found

    def check(self, foreseen: Touched, landed: Touched) -> None:
        displaced = [each for each, stretch in landed.items() if foreseen[each] != stretch]
        if displaced:
            self._shared.update(displaced)
            self._next.clear()  # the aborted transaction leaves its markers everywhere
            raise OffsetMispredicted

    def note_commit(self, touched: Touched) -> None:
        for partition, stretch in touched.items():
            if partition not in self._shared:
                self._next[partition] = stretch.end + MARKER_RECORDS


def stretch_of(records: int, size: int, first: int) -> OffsetRange:
    return OffsetRange(first, first + records, records, size)
