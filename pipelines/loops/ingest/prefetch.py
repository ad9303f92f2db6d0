"""Reads a few batches of a source while the log is busy with earlier ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from headwater.core_log.model.changes import ChangeBatch
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.journal.commits import OffsetRange
from headwater.pipelines.loops.ingest.encoder import PartitionBatch

BATCHES_MAX = 2
"""The only queue in the data path; it is short because each batch may be large."""


class Prefetch:
    """Yields batches in order; the source's end or error comes after the last of them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[ChangeBatch | Exception | None] = asyncio.Queue(BATCHES_MAX)

    async def next(self) -> ChangeBatch | None:
        """Returns None if the source has ended."""
        found = await self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def next_within(self, wait_ms: int) -> ChangeBatch | None:
        """Returns None also after the timeout or an error of the source: earlier batches can still
        be committed, and `next` raises the error."""
        try:
            if self._queue.empty() and wait_ms > 0:
                async with asyncio.timeout(
                    wait_ms / 1_000
                ):  # wait_for of 3.11 swallows our own cancellation
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
        while True:  # a repeated call returns the same
            await self._queue.put(end)


@asynccontextmanager
async def read_ahead(batches: AsyncGenerator[ChangeBatch, None]) -> AsyncIterator[Prefetch]:
    """Closes the source's iterator before it returns."""
    ahead = Prefetch()
    filling = asyncio.ensure_future(ahead.fill(batches))
    try:
        yield ahead
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        await batches.aclose()


MARKER_RECORDS = 1
"""Offsets that the end of a transaction takes in every partition that it wrote to."""

Touched = Mapping[TopicPartition, OffsetRange]


class OffsetMispredicted(Exception):
    """Somebody else appended at predicted offsets of a transaction, which is aborted."""


class OffsetPrediction:
    """Predicts offsets in partitions with one writer: a transaction begins at the former one's end.
    A partition with other writers is never predicted again."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._shared: set[TopicPartition] = set()

    def of(self, landed: Touched, under_way: Iterable[PartitionBatch]) -> Touched | None:
        """Returns the offsets of the transaction after these batches; None if they cannot be
        predicted."""
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
