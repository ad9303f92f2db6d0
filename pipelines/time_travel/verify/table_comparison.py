"""Compares one table of the log with its source and its targets, each pair at one moment."""

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from headwater.connectors.source import SourceSnapshot
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import LogUnavailable, PositionLost
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.generations import Generations, load_generations, source_parts
from headwater.pipelines.journal.positions import load_positions
from headwater.pipelines.journal.replacements import beginnings_of, last_replacements
from headwater.pipelines.loops.deliver.cutover import carry_offsets
from headwater.pipelines.loops.deliver.offset_check import REBUILD
from headwater.pipelines.loops.deliver.records_by_offset import RecordOffset
from headwater.pipelines.loops.thread_offload import beside
from headwater.pipelines.time_travel.history.cut_points import (
    CutPoint,
    Ends,
    check_exact,
    newest_moment,
)
from headwater.pipelines.time_travel.rebuild.lock import being_read_again
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
    Precheck,
    keys_at,
    precheck,
)
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogFold, LogState
from headwater.pipelines.time_travel.verify.multiset_diff import (
    LogMultiset,
    Multiset,
    multiset_diff,
)
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
LOOKS = 3
"""Reads of a source without positions before a difference counts."""


@runtime_checkable
class ComparableSink(Sink, Comparable, Protocol):
    """A sink whose tables can be read."""


@dataclass(frozen=True, slots=True)
class TableComparison:
    """A comparison through the pipeline's own transforms and codec."""

    loaded: LoadedPipeline
    log: Log
    clock: Clock
    after_log: RowTransforms
    is_running: bool
    """Whether the pipeline runs meanwhile."""

    async def verdicts(
        self,
        subject: ComparedTable,
        of_source: SourceSide | None,
        sinks: Mapping[str, ComparableSink],
        *,
        repairs_log: bool,
    ) -> list[TableVerdict]:
        """Returns a verdict per side; with `repairs_log` differing rows are written again.
        A failed side is a verdict; only an unreachable log ends the comparison."""
        found: list[TableVerdict] = []
        sides = [*([SOURCE] if of_source is not None else []), *sinks]
        with outcomes(subject, sides, into=found):
            if subject.failure is not None:
                raise subject.failure
            if of_source is not None:
                with outcomes(subject, [SOURCE], into=found):
                    await self._check_not_reread(subject, of_source)
                of_source = None if found else of_source
            await self._compare(subject, of_source, sinks, found, repairs_log=repairs_log)
        return found

    async def _check_not_reread(self, subject: ComparedTable, of_source: SourceSide) -> None:
        """Raises if the table may differ from its stream, or has been read again since just before
        the snapshot."""
        now = last_replacements(await load_positions(self.log, self.loaded.name))
        for table in (stored.schema.table for stored in subject.sources):
            found, before = now.get(table), of_source.replacements.get(table)
            if found is not None and not (found == before and found.has_ended):
                raise being_read_again(
                    found, "compare it again later: headwater status says how far it is"
                )

    async def _compare(
        self,
        subject: ComparedTable,
        of_source: SourceSide | None,
        sinks: Mapping[str, ComparableSink],
        found: list[TableVerdict],
        *,
        repairs_log: bool,
    ) -> None:
        async with AsyncExitStack() as stack:
            seen: Precheck | None = None
            if of_source is not None and of_source.snapshot.positions and subject.schema.key:
                rows, shape = (
                    of_source.rows(subject),
                    ComparedColumns(subject.schema, subject.schema.names),
                )
                seen = await stack.enter_async_context(precheck(rows, shape))
            opened: dict[str, TableContents] = {}
            generations = await load_generations(self.log, self.loaded.name, subject.topics)
            ids = {topic: await self.log.topic_id(topic) for topic in subject.topics}
            for name, sink in sinks.items():
                with outcomes(subject, [name], into=found):
                    topics = generations.line_of(subject.topics)
                    contents = await stack.enter_async_context(
                        sink.contents(subject.schema, topics)
                    )
                    offsets = carry_offsets(generations, contents.offsets, ids)
                    opened[name] = replace(contents, offsets=offsets)
            moments = await self._moments(subject, of_source, opened, found)
            if not subject.schema.key:
                await self._multiset_diff(subject, moments, opened, of_source, found)
                return
            for columns in dict.fromkeys(
                opened[name].columns if name in opened else subject.schema.names for name in moments
            ):
                chosen = {
                    name: moment
                    for name, moment in moments.items()
                    if (opened[name].columns if name in opened else subject.schema.names) == columns
                }
                with outcomes(subject, chosen, into=found):
                    await self._fold_and_compare(
                        subject,
                        ComparedColumns(subject.schema, columns),
                        chosen,
                        opened,
                        of_source,
                        seen,
                        found,
                        repairs_log=repairs_log,
                    )

    async def _moments(
        self,
        subject: ComparedTable,
        of_source: SourceSide | None,
        opened: Mapping[str, TableContents],
        found: list[TableVerdict],
    ) -> dict[str, CutPoint]:
        """Returns the end of the log for each side."""
        partitions = await subject.partitions(self.log)
        moments: dict[str, CutPoint] = {}
        if of_source is not None:
            with outcomes(subject, [SOURCE], into=found):
                try:
                    moment = await of_source.moment(partitions)
                    await self._check_not_reread(subject, of_source)
                    moments[SOURCE] = moment
                except LogUnavailable as error:  # the log has not reached the source's position
                    found.append(failed_verdict(subject, SOURCE, error))
        for name, contents in opened.items():
            with outcomes(subject, [name], into=found):
                moments[name] = await self._moment_of_target(contents, partitions)
        return moments

    async def _moment_of_target(
        self, contents: TableContents, partitions: Sequence[TopicPartition]
    ) -> CutPoint:
        ids = {part.topic: await self.log.topic_id(part.topic) for part in partitions}
        for partition, applied in contents.offsets.items():
            if partition.topic in ids and applied.topic_id != ids[partition.topic]:
                raise PositionLost(
                    "the table was filled from a deleted topic of the same name",
                    hint=REBUILD,
                    topic=partition.topic,
                )
        ends = {
            part: contents.offsets[part].next_offset if part in contents.offsets else 0
            for part in partitions
        }
        named = ",".join(f"{part.partition}:{end}" for part, end in ends.items())
        moment = CutPoint(ends, f"offset {named}")
        if any(ends.values()):
            await check_exact(self.log, self.loaded.name, moment, is_recent=True)
        return moment

    async def _multiset_diff(
        self,
        subject: ComparedTable,
        moments: Mapping[str, CutPoint],
        opened: Mapping[str, TableContents],
        of_source: SourceSide | None,
        found: list[TableVerdict],
    ) -> None:
        """Compares a table without a key."""
        for name, moment in moments.items():
            with outcomes(subject, [name], into=found):
                found.append(await self._keyless_verdict(subject, name, moment, opened, of_source))

    async def _keyless_verdict(
        self,
        subject: ComparedTable,
        name: str,
        moment: CutPoint,
        opened: Mapping[str, TableContents],
        of_source: SourceSide | None,
    ) -> TableVerdict:
        began_ms = self.clock.monotonic_ms()
        columns = opened[name].columns if name in opened else subject.schema.names
        shape = ComparedColumns(subject.schema, columns)
        told = LogMultiset(
            self.log,
            shape,
            moment.ends,
            after_log=self.after_log,
            fetch_bytes=self.loaded.spec.limits.fetch_size_bytes,
        )
        batches: AsyncIterator[pa.RecordBatch]
        if name == SOURCE:
            assert of_source is not None, "only a source that was opened has a moment"
            batches = of_source.rows(subject)
        else:
            batches = opened[name].batches
        ours, theirs = await told.read(as_rows=name == SOURCE), Multiset()
        async for batch in batches:
            await beside(partial(_add, theirs, shape, batch), batch.nbytes)
        if (lost := await self._lost_error(moment)) is not None:
            raise lost
        unread = await still_unread(self.log, told.skipped, moment.ends)
        compared, dead = multiset_diff(told, ours, theirs), list[RecordOffset]()
        if name != SOURCE and compared.differing:
            letters = await dead_letters_of(self.log, self.loaded.name, name, subject)
            compared, dead = await self._keyless_without_dead(told, theirs, compared, letters)
        if name == SOURCE and of_source is not None and not of_source.snapshot.sees_deletes:
            compared = _without_missing(compared)
        left_out = tuple(set(subject.schema.names) - set(columns))
        took_ms = self.clock.monotonic_ms() - began_ms
        verdict = TableVerdict(
            subject,
            name,
            shape,
            moment,
            compared,
            left_out=left_out,
            took_ms=took_ms,
            unread=unread,
            incomparable=_incomparable(of_source, subject, side=name),
            dead=dead,
        )
        return replace(verdict, named=await self._name(verdict))

    async def _keyless_without_dead(
        self,
        told: LogMultiset,
        theirs: Multiset,
        compared: ComparisonResult,
        letters: Set[RecordOffset],
    ) -> tuple[ComparisonResult, list[RecordOffset]]:
        """Returns the log's rows without a key minus dead letters, if the target has exactly
        these."""
        if not letters:
            return compared, []
        for place, offset in letters:
            told.skipped.setdefault(place, set()).add(offset)
        again = multiset_diff(told, await told.read(as_rows=False), theirs)
        return (compared, []) if again.differing else (again, sorted(letters))

    async def _fold_and_compare(
        self,
        subject: ComparedTable,
        shape: ComparedColumns,
        moments: Mapping[str, CutPoint],
        opened: Mapping[str, TableContents],
        of_source: SourceSide | None,
        seen: Precheck | None,
        found: list[TableVerdict],
        *,
        repairs_log: bool,
    ) -> None:
        began_ms = self.clock.monotonic_ms()
        keeps_deleted = any(
            opened[name].deleted is not DeletedRows.GONE for name in moments if name in opened
        )
        fold = self._fold(shape, keeps_deleted=keeps_deleted)
        states = await fold.states([moment.ends for moment in moments.values()])
        marks: Ends = {}
        beginnings: Ends = {}
        has_former_key = False
        if keeps_deleted:
            marks = await cleaned_to(self.log, self.loaded.name, await subject.partitions(self.log))
            positions = await load_positions(self.log, self.loaded.name)
            ids = {topic: await self.log.topic_id(topic) for topic in subject.topics}
            beginnings = beginnings_of(positions, ids)
            has_former_key = any(
                switch.topic in subject.topics and not switch.is_filled
                for switch in Generations.of(positions).switches
            )
        for (name, moment), told in zip(moments.items(), states, strict=True):
            with outcomes(subject, [name], into=found):
                state = told.current()
                if (lost := await self._lost_error(moment)) is not None:
                    raise lost
                unrepaired, deleted, dead = "", DeletedRows.GONE, list[RecordOffset]()
                if name == SOURCE:
                    assert of_source is not None, "only a source that was opened has a moment"
                    equal = None if seen is None else (await seen).compare(state)
                    compared = equal or await _compared_source(state, shape, of_source, subject)
                    compared = await self._looked_again(subject, of_source, shape, compared)
                    if not of_source.snapshot.sees_deletes:
                        compared = _without_missing(compared)
                    if repairs_log and compared.differing:
                        snapshot = of_source.snapshot
                        unrepaired = await self._repair_log(
                            subject, shape, moment, compared, snapshot
                        )
                else:
                    deleted = opened[name].deleted
                    if deleted is not DeletedRows.GONE:
                        state = told.limit_to_known(marks).with_former(beginnings)
                        if has_former_key:  # the deleted rows are in a former topic
                            state = replace(state, is_whole=False)
                    comparison = KeyedDiff(state, shape, deleted=deleted)
                    compared = await _compare(comparison, opened[name].batches, shape)
                    if compared.differing:
                        letters = await dead_letters_of(self.log, self.loaded.name, name, subject)
                        compared, dead = without_dead(compared, letters)
                verdict = TableVerdict(
                    subject,
                    name,
                    shape,
                    moment,
                    compared,
                    left_out=tuple(set(subject.schema.names) - set(shape.columns)),
                    took_ms=self.clock.monotonic_ms() - began_ms,
                    unread=await still_unread(self.log, fold.skipped, moment.ends),
                    unrepaired=unrepaired,
                    deleted=deleted,
                    incomparable=_incomparable(of_source, subject, side=name),
                    dead=dead,
                )
                found.append(replace(verdict, named=await self._name(verdict)))

    async def _repair_log(
        self,
        subject: ComparedTable,
        shape: ComparedColumns,
        moment: CutPoint,
        compared: ComparisonResult,
        of: SourceSnapshot,
    ) -> str:
        """Repairs the log while the compared snapshot is open; returns why it failed."""
        try:
            check_few(compared, table=str(subject.target))
            for stored in subject.sources:
                repair = SourceRepair(
                    self.loaded,
                    stored,
                    shape,
                    self.after_log,
                    {part: end for part, end in moment.ends.items() if part.topic == stored.topic},
                    compared.keys,
                )
                await repair_log(repair, of, self.log, clock=self.clock)
        except LogUnavailable:
            raise
        except Exception as error:
            return failed_verdict(subject, SOURCE, error).problem
        return ""

    async def _lost_error(self, moment: CutPoint) -> PositionLost | None:
        """Returns the error if compaction has passed the read, which is then incomplete."""
        if not any(moment.ends.values()):
            return None  # nothing was read
        try:
            await check_exact(self.log, self.loaded.name, moment, is_recent=True)
        except PositionLost as error:
            return error
        return None

    async def _looked_again(
        self,
        subject: ComparedTable,
        of_source: SourceSide,
        shape: ComparedColumns,
        compared: ComparisonResult,
    ) -> ComparisonResult:
        """Compares a source without positions again: it was read at another moment than the log, so
        a passing difference is none."""
        if of_source.snapshot.positions or not self.is_running:
            return compared
        for _ in range(LOOKS - 1):
            if not compared.differing:
                break
            await of_source.pause()
            reached = source_parts(await load_positions(self.log, self.loaded.name))
            async with of_source.source.snapshot(reached) as snapshot:
                partitions = await subject.partitions(self.log)
                ends = (await newest_moment(self.log, partitions)).ends
                [state] = await self._fold(shape).states([ends])
                side = replace(of_source, snapshot=snapshot)
                again = await _compared_source(state, shape, side, subject)
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

    async def _name(self, verdict: TableVerdict) -> list[Mapping[str, Any]]:
        found = list(verdict.compared.keys.values())[:KEYS_NAMED]
        unnamed = [each.place for each in found if each.key is None and each.place is not None]
        keys = await keys_at(self.log, unnamed, self.after_log, verdict.shape)
        return [
            {"key": keys.get(each.place) if each.key is None and each.place else each.key,
             "problem": each.kind.value}
            for each in found
        ]  # fmt: skip


def _incomparable(
    of_source: SourceSide | None, subject: ComparedTable, *, side: str
) -> IncomparableRows:
    if of_source is None or side != SOURCE:
        return IncomparableRows()
    return of_source.incomparable[subject.target]


async def _compared_source(
    state: LogState, shape: ComparedColumns, side: SourceSide, subject: ComparedTable
) -> ComparisonResult:
    comparison = KeyedDiff(state, shape)
    async for batch in side.rows(subject):
        if batch.num_rows:
            await beside(partial(_take, comparison, shape, batch), batch.nbytes)
    left_out = side.incomparable[subject.target]
    comparison.pass_over(None if left_out.nameless else left_out.digests(shape))
    return comparison.finish()


async def _compare(
    comparison: KeyedDiff, batches: AsyncIterator[pa.RecordBatch], shape: ComparedColumns
) -> ComparisonResult:
    async for batch in batches:
        if batch.num_rows:
            await beside(partial(_take, comparison, shape, batch), batch.nbytes)
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
