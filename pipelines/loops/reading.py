"""Reads a slice of the log back into changes: fetched, decoded, transformed, routed."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from core_log.changes import TableChanges
from core_log.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from core_log.table_schema import TableId
from pipelines.journal.internal_topics import COMMITS
from pipelines.loops.busy_work import beside, one_ahead
from pipelines.loops.decoding import Decoded, Decoder
from pipelines.loops.truncates import Barrier, Range, find_barriers
from sinks.aged_deletes import check_no_delete_was_missed
from sinks.sink import Slice

Skipped = Mapping[TopicPartition, set[int]]
"""Offsets of records that went to the dead-letter topic."""
NOTHING: frozenset[int] = frozenset()


class AfterLog(Protocol):
    """What a pipeline does to changes on their way out: filters, added columns, table routes."""

    def apply(self, changes: TableChanges, *, may_have_gaps: bool) -> list[TableChanges]: ...

    @property
    def is_sql(self) -> bool:
        """Whether there is something to compute, and no code of the user's among it."""
        ...


@dataclass(slots=True)
class Count:
    """What the last slice brought of one table of the source."""

    topic: str
    rows: int = 0
    bytes: int = 0
    committed_ms: int = 0


class SliceReader:
    """Decodes what slices cover, one fetch ahead of whoever uses it, so that memory does not grow
    with the slice."""

    def __init__(
        self,
        log: Log,
        *,
        after_log: AfterLog,
        fetch_bytes: int,
        skipped: Callable[[], Skipped],
        is_alone: bool = True,
    ) -> None:
        """`is_alone`: whether the machine's other cores are free to help."""
        self._log, self._after_log, self._skipped = log, after_log, skipped
        self._limit = FetchLimit(bytes_max=fetch_bytes)
        self._decoder = Decoder(log, is_alone=is_alone)
        self._may_leave_loop = is_alone and after_log.is_sql
        self.counts: dict[TableId, Count] = {}
        """By table of the source, since it was last emptied."""
        self.feeds: dict[TableId, set[str]] = {}
        """Which topics have gone into each table of the target."""

    async def read(self, part: Slice) -> AsyncIterator[TableChanges]:
        """Every change of the slice once. Within a partition in the order of its offsets; a
        truncate once for all partitions, after what was before it in any of them."""
        ends = {
            partition: stand.next_offset
            for partition, stand in part.end.items()
            if partition.topic != COMMITS
        }
        before = await self._log.bounds(ends)
        reached = {
            partition: max(part.start[partition].next_offset, before[partition].start)
            for partition in ends
        }
        for barrier in await self._barriers(part, reached, ends):
            async for changes in self._read_to(barrier, reached, before):
                yield changes
            # One marker stands for all, and comes before whatever follows any of them.
            [(first, offset), *others] = barrier.items()
            async for changes in self._read_to({first: offset + 1}, reached, before):
                yield changes
            reached |= {partition: offset + 1 for partition, offset in others}
        async for changes in self._read_to(ends, reached, before):
            yield changes
        after = await self._log.bounds(before)
        check_no_delete_was_missed(part.start, before=before, after=after)

    async def _barriers(
        self, part: Slice, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[Barrier]:
        found: list[Barrier] = []
        for topic in sorted(part.truncated):
            ranges = {
                partition: Range(reached[partition], end)
                for partition, end in ends.items()
                if partition.topic == topic
            }
            if len(ranges) > 1:
                found += await find_barriers(self._log, ranges)
        return found

    async def _read_to(
        self,
        ends: Mapping[TopicPartition, int],
        reached: dict[TopicPartition, int],
        before: Mapping[TopicPartition, Bounds],
    ) -> AsyncIterator[TableChanges]:
        """Moves `reached` on to `ends`."""
        async with aclosing(one_ahead(self._routed(ends, reached, before))) as routed:
            async for each in routed:
                for changes in each:
                    yield changes

    async def _routed(
        self,
        ends: Mapping[TopicPartition, int],
        reached: dict[TopicPartition, int],
        before: Mapping[TopicPartition, Bounds],
    ) -> AsyncGenerator[list[TableChanges], None]:
        """While more is decoded, and while what came before is written."""
        async with aclosing(one_ahead(self._pieces(ends, reached))) as pieces:
            async for piece in pieces:
                for each in piece:
                    size = each.bytes if self._may_leave_loop else 0
                    yield await beside(partial(self._route, each, before), size)

    async def _pieces(
        self, ends: Mapping[TopicPartition, int], reached: dict[TopicPartition, int]
    ) -> AsyncGenerator[Sequence[Decoded], None]:
        """What each fetch brings of a partition."""
        while wanted := {part: reached[part] for part in ends if reached[part] < ends[part]}:
            fetched = await self._log.fetch(
                wanted, limit=self._limit, isolation=Isolation.COMMITTED
            )
            if not fetched:
                reached |= await self._beyond_compacted(wanted, ends)
            for each in fetched:
                partition, end = each.partition, ends[each.partition]
                reached[partition] = min(each.next_offset, end)
                yield await self._decoder.decode(
                    each,
                    from_offset=wanted[partition],
                    end=end,
                    skipped=self._skipped().get(partition, NOTHING),
                )

    async def _beyond_compacted(
        self, wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Compaction can have removed all that was left before an end that is long decided."""
        bounds = await self._log.bounds(wanted)
        return {
            part: ends[part] if bounds[part].stable >= ends[part] else at
            for part, at in wanted.items()
        }

    def _route(
        self, decoded: Decoded, before: Mapping[TopicPartition, Bounds]
    ) -> list[TableChanges]:
        changes = decoded.changes
        partition, offsets = changes.log_partition, changes.log_offsets
        assert partition is not None and offsets is not None, "what was read knows its place"
        count = self.counts.setdefault(changes.schema.table, Count(partition.topic))
        count.rows += len(changes)
        count.bytes += decoded.bytes
        count.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        may_have_gaps = offsets[0].as_py() < before[partition].cleaned_to
        routed = self._after_log.apply(changes, may_have_gaps=may_have_gaps)
        for each in routed:
            self.feeds.setdefault(each.schema.table, set()).add(partition.topic)
        return routed
