"""Compares one table of the log with its source and its targets, each pair at one moment."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import LogUnavailable, NothingApplied, PositionLost
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import Generations, load_generations, source_parts
from headwater.pipelines.journal.replacements import (
    beginnings_of,
    being_read_again,
    last_replacements,
)
from headwater.pipelines.loops.deliver.cutover import carry_offsets
from headwater.pipelines.loops.deliver.offset_check import (
    REBUILD,
    check_same_history,
    epoch_ends,
)
from headwater.pipelines.loops.deliver.slice_reader import RecordOffset
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.time_travel.history.cut_points import (
    CutPoint,
    Ends,
    check_exact,
    count_later,
    newest_cut_point,
)
from headwater.pipelines.time_travel.verify.dead_letter_rows import (
    dead_letters_of,
    still_unread,
    without_dead,
)
from headwater.pipelines.time_travel.verify.deleted_rows import cleaned_to, ends_in
from headwater.pipelines.time_travel.verify.keyed_diff import (
    ComparisonResult,
    DifferenceKind,
    KeyedDiff,
    LogMultiset,
    Multiset,
    Precheck,
    multiset_diff,
    precheck,
    rows_at,
)
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogFold, LogState
from headwater.pipelines.time_travel.verify.repair_log import SourceRepair, repair_log
from headwater.pipelines.time_travel.verify.repair_target import check_few
from headwater.pipelines.time_travel.verify.result import (
    SOURCE,
    IncomparableRows,
    TableVerdict,
    failed_verdict,
    outcomes,
)
from headwater.pipelines.time_travel.verify.source_state import SourceSide
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.sinks.sink import DELETED_AT, Comparable, DeletedRows, Sink, TableContents

KEYS_NAMED = 20
"""Differing keys that are named per comparison."""
READS_MAX = 3
"""Reads of a source without positions before a difference counts."""


@runtime_checkable
class ComparableSink(Sink, Comparable, Protocol):
    """A sink whose tables can be read."""


@dataclass(slots=True)
class TableComparison:
    """The comparison of one table through the pipeline's own transforms and codec."""

    loaded: LoadedPipeline
    log: Log
    clock: Clock
    after_log: RowTransforms
    is_running: bool
    """Whether the pipeline runs meanwhile."""
    subject: ComparedTable
    of_source: SourceSide | None
    sinks: Mapping[str, ComparableSink]
    repairs_log: bool
    """Whether differing rows are written to the log again."""
    _found: list[TableVerdict] = field(default_factory=list, init=False)
    _opened: dict[str, TableContents] = field(default_factory=dict, init=False)
    _precheck: Precheck | None = field(default=None, init=False)

    async def verdicts(self) -> list[TableVerdict]:
        """Returns a verdict per side. A failed side is a verdict; only an unreachable log ends the
        comparison."""
        sides = [*([SOURCE] if self.of_source is not None else []), *self.sinks]
        with self._outcomes(sides):
            if self.subject.failure is not None:
                raise self.subject.failure
            if self.of_source is not None:
                with self._outcomes([SOURCE]):
                    await self._check_not_reread(self.of_source)
                self.of_source = None if self._found else self.of_source
            await self._compare()
        return self._found

    def _outcomes(self, sides: Iterable[str]) -> AbstractContextManager[None]:
        return outcomes(self.subject, sides, into=self._found)

    async def _check_not_reread(self, of_source: SourceSide) -> None:
        """Raises if the table may differ from its stream, or has been read again since just before
        the snapshot."""
        now = last_replacements(await load_positions(self.log, self.loaded.name))
        for table in (stored.schema.table for stored in self.subject.sources):
            found, before = now.get(table), of_source.replacements.get(table)
            if found is not None and not (found == before and found.has_ended):
                raise being_read_again(
                    found, "compare it again later: headwater status says how far it is"
                )

    async def _compare(self) -> None:
        subject, of_source = self.subject, self.of_source
        async with AsyncExitStack() as stack:
            if of_source is not None and of_source.snapshot.positions and subject.schema.key:
                shape = ComparedColumns(subject.schema, of_source.columns(subject))
                check = precheck(of_source.rows(subject), shape)
                self._precheck = await stack.enter_async_context(check)
            generations = await load_generations(self.log, self.loaded.name, subject.topics)
            ids = {topic: await self.log.topic_id(topic) for topic in subject.topics}
            topics = generations.line_of(subject.topics)
            for name, sink in self.sinks.items():
                with self._outcomes([name]):
                    opening = sink.contents(subject.schema, topics)
                    contents = await stack.enter_async_context(opening)
                    offsets = carry_offsets(generations, contents.offsets, ids)
                    self._opened[name] = replace(contents, offsets=offsets)
            cut_points = await self._cut_points()
            if not subject.schema.key:
                for name, cut_point in cut_points.items():
                    with self._outcomes([name]):
                        self._found.append(await self._keyless_verdict(name, cut_point))
                return
            for columns in dict.fromkeys(map(self._columns_of, cut_points)):
                chosen = {
                    name: cut_point
                    for name, cut_point in cut_points.items()
                    if self._columns_of(name) == columns
                }
                with self._outcomes(chosen):
                    await self._fold_and_compare(ComparedColumns(subject.schema, columns), chosen)

    def _columns_of(self, side: str) -> tuple[str, ...]:
        if side == SOURCE and self.of_source is not None:
            return self.of_source.columns(self.subject)
        opened = self._opened.get(side)
        return self.subject.schema.names if opened is None else opened.columns

    async def _cut_points(self) -> dict[str, CutPoint]:
        """Returns the end of the log for each side."""
        partitions = await self.subject.partitions(self.log)
        cut_points: dict[str, CutPoint] = {}
        if self.of_source is not None:
            with self._outcomes([SOURCE]):
                try:
                    cut_point = await self.of_source.cut_point(partitions)
                    await self._check_not_reread(self.of_source)
                    cut_points[SOURCE] = cut_point
                except LogUnavailable as error:  # the log has not reached the source's position
                    self._found.append(failed_verdict(self.subject, SOURCE, error))
        for name, contents in self._opened.items():
            with self._outcomes([name]):
                cut_points[name] = await self._cut_point_of_target(contents, partitions)
        return cut_points

    async def _cut_point_of_target(
        self, contents: TableContents, partitions: Sequence[TopicPartition]
    ) -> CutPoint:
        ids = {part.topic: await self.log.topic_id(part.topic) for part in partitions}
        ours = {part: at for part, at in contents.offsets.items() if part.topic in ids}
        for partition, applied in ours.items():
            if applied.topic_id != ids[partition.topic]:
                raise PositionLost(
                    "the table was filled from a deleted topic of the same name",
                    hint=REBUILD,
                    topic=partition.topic,
                )
        epochs = await epoch_ends(self.log, ours)
        for partition, applied in ours.items():
            check_same_history(partition, applied, epochs)
        ends = {
            part: contents.offsets[part].next_offset if part in contents.offsets else 0
            for part in partitions
        }
        named = ",".join(f"{part.partition}:{end}" for part, end in ends.items())
        cut_point = CutPoint(ends, f"offset {named}")
        if any(ends.values()):
            await check_exact(self.log, self.loaded.name, cut_point, is_recent=True)
        elif await count_later(self.log, ends):
            raise NothingApplied(
                "the target has applied nothing of this table yet",
                hint="headwater status says what its sink does",
            )
        return cut_point

    async def _keyless_verdict(self, name: str, cut_point: CutPoint) -> TableVerdict:
        """Compares a table without a key."""
        began_ms = self.clock.monotonic_ms()
        shape = ComparedColumns(self.subject.schema, self._columns_of(name))
        of_log = LogMultiset(
            self.log,
            shape,
            cut_point.ends,
            after_log=self.after_log,
            fetch_bytes=self.loaded.spec.limits.fetch_size_bytes,
        )
        batches: AsyncIterator[pa.RecordBatch]
        if name == SOURCE:
            assert self.of_source is not None, "only a source that was opened has a cut point"
            batches = self.of_source.rows(self.subject)
        else:
            batches = self._opened[name].batches
        ours, theirs = await of_log.read(as_rows=name == SOURCE), Multiset()
        async for batch in batches:
            await run_in_thread(partial(_add, theirs, shape, batch), batch.nbytes)
        await self._check_not_lost(cut_point)
        unread = await still_unread(self.log, of_log.skipped, cut_point.ends)
        compared, dead = multiset_diff(of_log, ours, theirs), list[RecordOffset]()
        if name != SOURCE and compared.differing:
            dead_letters = await dead_letters_of(self.log, self.loaded.name, name, self.subject)
            compared, dead = await self._keyless_without_dead(
                of_log, theirs, compared, dead_letters
            )
        if name == SOURCE and self.of_source and not self.of_source.snapshot.sees_deletes:
            compared = _without_missing(compared)
        return await self._verdict(
            name, shape, cut_point, compared, began_ms=began_ms, unread=unread, dead=dead
        )

    async def _verdict(
        self,
        name: str,
        shape: ComparedColumns,
        cut_point: CutPoint,
        compared: ComparisonResult,
        *,
        began_ms: int,
        **more: Any,
    ) -> TableVerdict:
        incomparable, behind = IncomparableRows(), 0
        if name != SOURCE:
            behind = await count_later(self.log, cut_point.ends)
        if self.of_source is not None and name == SOURCE:
            incomparable = self.of_source.incomparable[self.subject.target]
        return TableVerdict(
            self.subject,
            name,
            shape,
            cut_point,
            compared,
            named=await self._name(compared, shape),
            left_out=tuple(set(self.subject.schema.names) - set(shape.columns)),
            took_ms=self.clock.monotonic_ms() - began_ms,
            incomparable=incomparable,
            behind=behind,
            **more,
        )

    async def _keyless_without_dead(
        self,
        of_log: LogMultiset,
        theirs: Multiset,
        compared: ComparisonResult,
        dead_letters: Set[RecordOffset],
    ) -> tuple[ComparisonResult, list[RecordOffset]]:
        """Returns the log's rows without a key minus dead letters, if the target has exactly
        these."""
        if not dead_letters:
            return compared, []
        for place, offset in dead_letters:
            of_log.skipped.setdefault(place, set()).add(offset)
        again = multiset_diff(of_log, await of_log.read(as_rows=False), theirs)
        return (compared, []) if again.differing else (again, sorted(dead_letters))

    async def _fold_and_compare(
        self, shape: ComparedColumns, cut_points: Mapping[str, CutPoint]
    ) -> None:
        began_ms = self.clock.monotonic_ms()
        opened = [self._opened[name] for name in cut_points if name in self._opened]
        keeps_deleted = any(each.deleted is not DeletedRows.GONE for each in opened)
        fold = self._fold(shape, keeps_deleted=keeps_deleted)
        states = await fold.states([cut_point.ends for cut_point in cut_points.values()])
        limits = await self._deleted_limits() if keeps_deleted else DeletedLimits({}, {}, False)
        for (name, cut_point), state in zip(cut_points.items(), states, strict=True):
            with self._outcomes([name]):
                await self._check_not_lost(cut_point)
                more: dict[str, Any] = {}
                if name == SOURCE:
                    compared = await self._compare_source(state.current(), shape)
                    if self.repairs_log and compared.differing:
                        more["unrepaired"] = await self._repair_log(shape, cut_point, compared)
                else:
                    compared = await self._compare_target(name, state, shape, limits)
                    more["deleted"] = self._opened[name].deleted
                    if compared.differing:
                        dead_letters = await dead_letters_of(
                            self.log, self.loaded.name, name, self.subject
                        )
                        compared, more["dead"] = without_dead(compared, dead_letters)
                more["unread"] = await still_unread(self.log, fold.skipped, cut_point.ends)
                verdict = await self._verdict(
                    name, shape, cut_point, compared, began_ms=began_ms, **more
                )
                self._found.append(verdict)

    async def _deleted_limits(self) -> "DeletedLimits":
        partitions = await self.subject.partitions(self.log)
        marks = await cleaned_to(self.log, self.loaded.name, partitions)
        positions = await load_positions(self.log, self.loaded.name)
        ids = {topic: await self.log.topic_id(topic) for topic in self.subject.topics}
        has_former_key = any(
            switch.topic in self.subject.topics and not switch.is_filled
            for switch in Generations.of(positions).switches
        )
        return DeletedLimits(marks, beginnings_of(positions, ids), has_former_key)

    async def _compare_source(self, state: LogState, shape: ComparedColumns) -> ComparisonResult:
        assert self.of_source is not None, "only a source that was opened has a cut point"
        equal = None if self._precheck is None else (await self._precheck).compare(state)
        compared = equal or await _compared_source(state, shape, self.of_source, self.subject)
        compared = await self._compare_again(self.of_source, shape, compared)
        return compared if self.of_source.snapshot.sees_deletes else _without_missing(compared)

    async def _compare_target(
        self, name: str, state: LogState, shape: ComparedColumns, limits: "DeletedLimits"
    ) -> ComparisonResult:
        deleted, batches = self._opened[name].deleted, self._opened[name].batches
        if deleted is DeletedRows.GONE:
            state = state.current()
        else:
            state = state.limit_to_known(limits.marks).with_former(limits.beginnings)
            if limits.has_former_key:  # the deleted rows are in a former topic
                state = replace(state, is_whole=False)
        comparison = KeyedDiff(state, shape, deleted=deleted)
        async for batch in batches:
            if batch.num_rows:
                await run_in_thread(partial(_take, comparison, shape, batch), batch.nbytes)
        return comparison.finish()

    async def _repair_log(
        self, shape: ComparedColumns, cut_point: CutPoint, compared: ComparisonResult
    ) -> str:
        """Repairs the log while the compared snapshot is open; returns why it failed."""
        assert self.of_source is not None, "only a source that was compared is repaired from"
        try:
            check_few(compared, table=str(self.subject.target))
            for stored in self.subject.sources:
                repair = SourceRepair(
                    self.loaded,
                    stored,
                    shape,
                    self.after_log,
                    {
                        part: end
                        for part, end in cut_point.ends.items()
                        if part.topic == stored.topic
                    },
                    compared.keys,
                )
                await repair_log(repair, self.of_source.snapshot, self.log, clock=self.clock)
        except LogUnavailable:
            raise
        except Exception as error:
            return failed_verdict(self.subject, SOURCE, error).problem
        return ""

    async def _check_not_lost(self, cut_point: CutPoint) -> None:
        """Raises PositionLost if compaction has passed the read, which is then incomplete."""
        if any(cut_point.ends.values()):  # else nothing was read
            await check_exact(self.log, self.loaded.name, cut_point, is_recent=True)

    async def _compare_again(
        self, of_source: SourceSide, shape: ComparedColumns, compared: ComparisonResult
    ) -> ComparisonResult:
        """Compares a source without positions again: it was read at another moment than the log, so
        a passing difference is none."""
        if of_source.snapshot.positions or not self.is_running:
            return compared
        for _ in range(READS_MAX - 1):
            if not compared.differing:
                break
            await of_source.pause()
            reached = source_parts(await load_positions(self.log, self.loaded.name))
            async with of_source.source.snapshot(reached) as snapshot:
                partitions = await self.subject.partitions(self.log)
                ends = (await newest_cut_point(self.log, partitions)).ends
                [state] = await self._fold(shape).states([ends])
                side = replace(of_source, snapshot=snapshot)
                again = await _compared_source(state, shape, side, self.subject)
            compared = again.unchanged_since(compared)
        return compared

    def _fold(self, shape: ComparedColumns, *, keeps_deleted: bool = False) -> LogFold:
        return LogFold(
            self.log,
            shape,
            after_log=self.after_log,
            fetch_bytes=self.loaded.spec.limits.fetch_size_bytes,
            keeps_deleted=keeps_deleted,
        )

    async def _name(
        self, compared: ComparisonResult, shape: ComparedColumns
    ) -> list[Mapping[str, Any]]:
        found = list(compared.keys.values())[:KEYS_NAMED]
        unnamed = [each.place for each in found if each.key is None and each.place is not None]
        of_keys = ComparedColumns(shape.schema, shape.schema.key)
        keys = await rows_at(self.log, unnamed, self.after_log, of_keys)
        places = [each.place for each in found if each.place is not None]
        rows = await rows_at(self.log, places, self.after_log, shape)
        return [
            {"key": keys.get(each.place) if each.key is None and each.place else each.key,
             "problem": each.kind.value,
             "log": rows.get(each.place) if each.place else None,
             "there": each.row}
            for each in found
        ]  # fmt: skip


class DeletedLimits(NamedTuple):
    """The deleted rows that the log may lack."""

    marks: Ends
    beginnings: Ends
    has_former_key: bool


async def _compared_source(
    state: LogState, shape: ComparedColumns, side: SourceSide, subject: ComparedTable
) -> ComparisonResult:
    comparison = KeyedDiff(state, shape)
    async for batch in side.rows(subject):
        if batch.num_rows:
            await run_in_thread(partial(_take, comparison, shape, batch), batch.nbytes)
    left_out = side.incomparable[subject.target]
    comparison.pass_over(None if left_out.nameless else left_out.digests(shape))
    return comparison.finish()


def _take(comparison: KeyedDiff, shape: ComparedColumns, batch: pa.RecordBatch) -> None:
    is_marked = DELETED_AT in batch.schema.names
    ends_us = ends_in(batch, DELETED_AT) if is_marked else None
    comparison.take(shape.project(batch), ends_us)


def _add(found: Multiset, shape: ComparedColumns, rows: pa.RecordBatch) -> None:
    found.add(shape.digests(shape.project(rows))[1])


def _without_missing(compared: ComparisonResult) -> ComparisonResult:
    """Removes rows that the source has deleted without a change event."""
    kept = {
        at: found for at, found in compared.keys.items() if found.kind is not DifferenceKind.MISSING
    }
    return replace(compared, counts={**compared.counts, DifferenceKind.MISSING: 0}, keys=kept)
