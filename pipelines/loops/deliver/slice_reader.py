"""Reads a slice of the log, or records by offset, as changes: decoded, transformed, routed."""

from asyncio import gather
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import RecordsRejected, failures_named
from headwater.core_log.model.changes import TableChanges, concat_changes
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.internal_topics import COMMITS
from headwater.pipelines.journal.schemas import SchemaReader
from headwater.pipelines.loops.deliver.decoder import (
    PART_BYTES,
    DecodedChanges,
    RecordDecoder,
    neighbours,
)
from headwater.pipelines.loops.deliver.offset_check import check_reached, check_same_topics
from headwater.pipelines.loops.deliver.truncate_barriers import (
    Barrier,
    TruncateRange,
    find_barriers,
)
from headwater.pipelines.loops.thread_offload import one_ahead, run_in_thread
from headwater.sinks.sink import AppliedOffsets, ChangeCount, Slice, check_no_delete_was_missed

Skipped = Mapping[TopicPartition, set[int]]
"""Offsets of records that went to the dead-letter topic."""
NOTHING: frozenset[int] = frozenset()
JOINED_BYTES_MAX = 2 * PART_BYTES
"""Bytes of records transformed at once: DuckDB takes as long for a few as for thousands."""
SliceCheck = Callable[[], Awaitable[None]]
"""A check after the last fetch, while its records are still processed."""
RecordOffset = tuple[TopicPartition, int]
"""The place of a record in the log."""
ONE_BATCH = FetchLimit(bytes_max=1)
"""A fetch returns at least one batch, even above the limit."""


class AfterLog(Protocol):
    """The pipeline's steps after the log: filters, added columns, table routes."""

    def apply(self, changes: TableChanges, *, may_have_gaps: bool) -> list[TableChanges]: ...

    def prepare(self) -> None:
        """Preloads libraries; an error is raised at the first use."""
        ...

    @property
    def is_sql(self) -> bool:
        """Returns whether SQL is used and no Python code of the user's."""
        ...

    @property
    def filters(self) -> bool:
        """Returns whether rows may be left out."""
        ...


class SliceReader:
    """Decodes slices one fetch ahead of the sink at each step, so that memory does not grow with
    the slice."""

    def __init__(
        self,
        log: Log,
        *,
        after_log: AfterLog,
        fetch_bytes: int,
        skipped: Callable[[], Skipped],
        is_alone: bool = True,
        schemas: SchemaReader | None = None,
    ) -> None:
        """`is_alone`: whether the machine's other cores are free. `schemas`: another source of
        schemas, if other names than the newest count."""
        self._log, self._after_log, self._skipped = log, after_log, skipped
        self._limit = FetchLimit(bytes_max=fetch_bytes)
        self._decoder = RecordDecoder(log, is_alone=is_alone, schemas=schemas)
        self._may_leave_loop = is_alone and after_log.is_sql
        self._joined_bytes_max = JOINED_BYTES_MAX if after_log.is_sql else 0
        self.counts: dict[TableId, ChangeCount] = {}
        """Counts of the last slice, by source table, since the table was last truncated."""
        self.feeds: dict[TableId, set[str]] = {}
        """Topics of each target table."""
        self._readings: list[AsyncGenerator[TableChanges, None]] = []
        self._counted: set[TopicPartition] = set()

    def begin_counts(self) -> None:
        """Begins the counts of a slice."""
        self.counts, self._counted = {}, set()

    def read(self, part: Slice) -> AsyncGenerator[TableChanges, None]:
        """Yields every change of the slice once.

        Within a partition changes are in offset order; a truncate comes once for all partitions,
        after everything before it in any of them.
        """
        reading = self._read(part)
        self._readings.append(reading)
        return reading

    async def aclose(self) -> None:
        """Ends an unfinished slice with its prefetched parts; other slices can be read then."""
        while self._readings:
            await self._readings.pop().aclose()

    async def _read(self, part: Slice) -> AsyncGenerator[TableChanges, None]:
        self._after_log.prepare()
        ends = {
            partition: applied.next_offset
            for partition, applied in part.end.items()
            if partition.topic != COMMITS
        }
        self._count_anew(ends.keys())
        # One set of columns for the whole slice, or one table would have two forms.
        await self._decoder.look({each.topic for each in ends})
        before = part.kept or await self._log.retained_ranges(ends)
        begun = _Begun(
            {each: part.end[each] for each in ends if part.end[each].topic_id},
            {each: max(part.start[each].next_offset, before[each].start) for each in ends},
            {each: before[each].cleaned_to for each in ends},
        )

        async def check() -> None:
            after, _ = await gather(
                self._log.retained_ranges(ends), check_same_topics(self._log, begun.offsets)
            )
            check_no_delete_was_missed(part.start, before=before, after=after)

        for barrier in await self._barriers(part, begun.reached, ends):
            async with aclosing(self._read_to(barrier, begun)) as before_it:
                async for changes in before_it:
                    yield changes
            # One marker stands for all, and comes before whatever follows any of them.
            [(first, offset), *others] = barrier.items()
            async with aclosing(self._read_to({first: offset + 1}, begun)) as marker:
                async for changes in marker:
                    yield replace(changes, markers=barrier)
            begun.reached.update({partition: offset + 1 for partition, offset in others})
        async with aclosing(self._read_to(ends, begun, check=check)) as rest:
            async for changes in rest:
                yield changes

    def _count_anew(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the counts of what a sink reads again, because its attempt was rolled back."""
        again = {each.topic for each in partitions if each in self._counted}
        self.counts = {name: each for name, each in self.counts.items() if each.topic not in again}
        self._counted |= set(partitions)

    def hear(self, counts: Sequence[ChangeCount]) -> None:
        """Adds counts of other readers of the same slice."""
        for each in counts:
            known = self.counts.get(each.table)
            self.counts[each.table] = each if known is None else _sum(known, each)

    async def _barriers(
        self, part: Slice, reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[Barrier]:
        found: list[Barrier] = []
        for topic in sorted(part.truncated):
            ranges = {
                partition: TruncateRange(reached[partition], end)
                for partition, end in ends.items()
                if partition.topic == topic
            }
            if len(ranges) > 1:
                found += await find_barriers(self._log, ranges)
        return found

    async def _read_to(
        self,
        ends: Mapping[TopicPartition, int],
        begun: "_Begun",
        *,
        check: SliceCheck | None = None,
    ) -> AsyncGenerator[TableChanges, None]:
        """Reads to `ends`, and ends after `check`."""
        async with aclosing(one_ahead(self._route_ahead(ends, begun, check))) as routed:
            async for each in routed:
                for changes in each:
                    yield changes

    async def _route_ahead(
        self, ends: Mapping[TopicPartition, int], begun: "_Begun", check: SliceCheck | None
    ) -> AsyncGenerator[list[TableChanges], None]:
        """Transforms while the next part is decoded and the last one is written."""
        async with aclosing(one_ahead(self._read_parts(ends, begun, check))) as parts:
            async for part in parts:
                for each in neighbours(part, bytes_max=self._joined_bytes_max):
                    size = sum(one.bytes for one in each) if self._may_leave_loop else 0
                    yield await run_in_thread(partial(self._route, each, begun.cleaned), size)

    async def _read_parts(
        self, ends: Mapping[TopicPartition, int], begun: "_Begun", check: SliceCheck | None
    ) -> AsyncGenerator[Sequence[DecodedChanges], None]:
        """Yields what each fetch returns of a partition, while the next is under way."""
        async with aclosing(one_ahead(self._fetches(ends, begun, check))) as fetches:
            async for fetched, from_offset in fetches:
                with failures_named(topic=fetched.partition.topic):
                    decoded = await self._decoder.decode(
                        fetched,
                        from_offset=from_offset,
                        end=ends[fetched.partition],
                        skipped=self._skipped().get(fetched.partition, NOTHING),
                    )
                yield decoded

    async def _fetches(
        self, ends: Mapping[TopicPartition, int], begun: "_Begun", check: SliceCheck | None
    ) -> AsyncGenerator[tuple[Fetched, int], None]:
        """Yields each fetch with its offset.

        The partition with the largest part left is asked for first, as the first one fills an
        answer: so partitions are read side by side, and keys come about as they were written.
        """
        reached = begun.reached
        spans = {part: max(end - reached[part], 1) for part, end in ends.items()}
        while left := [part for part in ends if reached[part] < ends[part]]:
            left.sort(key=lambda part: (reached[part] - ends[part]) / spans[part])
            wanted = {part: reached[part] for part in left}
            is_all_there = all(begun.decided.get(part, 0) >= ends[part] for part in wanted)
            limit = replace(self._limit, wait_ms_max=0) if is_all_there else self._limit
            fetched = await self._log.fetch(wanted, limit=limit, isolation=Isolation.COMMITTED)
            if not fetched:
                await check_same_topics(self._log, begun.offsets)
                reached |= await self._beyond_compacted(ends, begun)
            if self._after_log.filters:  # compaction goes on while a long slice is read
                kept = await self._log.retained_ranges(wanted)
                begun.cleaned.update({part: each.cleaned_to for part, each in kept.items()})
            for each in fetched:
                reached[each.partition] = min(each.next_offset, ends[each.partition])
                yield each, wanted[each.partition]
        if check is not None:
            await check()

    async def _beyond_compacted(
        self, ends: Mapping[TopicPartition, int], begun: "_Begun"
    ) -> dict[TopicPartition, int]:
        """Returns the offset after records that compaction has removed.

        Compaction can have removed all records before an end that was decided before the empty
        fetch. Later records can be fetched; an end beyond the log's never can.
        """
        wanted = {part: end for part, end in ends.items() if begun.reached[part] < end}
        gone = {part: end for part, end in wanted.items() if begun.decided.get(part, 0) >= end}
        for part, bound in (await self._log.bounds(wanted)).items():
            check_reached(part, ends[part], bound)
            begun.decided[part] = bound.stable
        return gone

    def _route(
        self, decoded: Sequence[DecodedChanges], cleaned: Mapping[TopicPartition, int]
    ) -> list[TableChanges]:
        changes = concat_changes([each.changes for each in decoded])
        partition, offsets = changes.log_partition, changes.log_offsets
        assert partition is not None and offsets is not None, "changes of the log have offsets"
        committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        size = sum(each.bytes for each in decoded)
        read = ChangeCount(changes.schema.table, partition.topic, len(changes), size, committed_ms)
        self.hear([read])
        may_have_gaps = offsets[0].as_py() < cleaned[partition]
        with failures_named(topic=partition.topic):
            routed = self._after_log.apply(changes, may_have_gaps=may_have_gaps)
        for each in routed:
            self.feeds.setdefault(each.schema.table, set()).add(partition.topic)
        return routed


@dataclass(frozen=True, slots=True)
class _Begun:
    """A slice that is being read, and the progress."""

    offsets: AppliedOffsets
    """The end offsets of topics whose ids are known."""
    reached: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]
    """Below this offset compaction may have removed changes that the target lacks."""
    decided: dict[TopicPartition, int] = field(default_factory=dict)
    """Below this offset a new fetch finds all records; asked after an empty fetch."""


def _sum(one: ChangeCount, other: ChangeCount) -> ChangeCount:
    return one._replace(
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
        committed_ms=max(one.committed_ms, other.committed_ms),
    )


async def changes_at(
    log: Log, places: Collection[RecordOffset], after_log: AfterLog | None
) -> list[TableChanges]:
    """Yields changes in offset order; each batch of the log is read once.

    Without `after_log` they are as in the log. Undecodable records in between are skipped.
    """
    wanted: dict[TopicPartition, list[int]] = {}
    for partition, offset in sorted(places):
        wanted.setdefault(partition, []).append(offset)
    decoder, found = RecordDecoder(log), list[TableChanges]()
    for partition, offsets in wanted.items():
        at, skipped = 0, set[int]()
        while at < len(offsets):
            answer = await log.fetch(
                {partition: offsets[at]}, limit=ONE_BATCH, isolation=Isolation.COMMITTED
            )
            if not answer:
                break  # compaction has removed all that was left
            [fetched] = answer
            end = int(np.searchsorted(offsets, fetched.next_offset))
            chosen = offsets[at:end]
            try:
                made = await decoder.decode(
                    fetched, from_offset=chosen[0], end=chosen[-1] + 1, skipped=skipped
                )
            except RecordsRejected as error:
                skipped.update(error.reasons)
                continue
            for decoded in made:
                changes = decoded.changes
                assert changes.log_offsets is not None, "changes of the log have offsets"
                mask = np.isin(changes.log_offsets.to_numpy(), chosen)
                if not mask.any():
                    continue
                chosen_rows = changes.filter(pa.array(mask))
                if after_log is None:
                    found.append(chosen_rows)
                else:
                    found += after_log.apply(chosen_rows, may_have_gaps=False)
            at = end
    return found
