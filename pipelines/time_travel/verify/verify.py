"""One run of `verify`: compares the selected sides and tables, and repairs them if asked."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import (
    HeadwaterError,
    LogUnavailable,
    RecordsRejected,
    SourceRejected,
)
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import source_parts
from headwater.pipelines.journal.replacements import last_replacements
from headwater.pipelines.loops.assembly import make_sink, make_source
from headwater.pipelines.time_travel.verify.repair_target import (
    TargetRepair,
    check_few,
    repair_target,
)
from headwater.pipelines.time_travel.verify.result import (
    SOURCE,
    ComparedSides,
    TableVerdict,
    failed_verdict,
    outcomes,
)
from headwater.pipelines.time_travel.verify.source_state import SnapshotableSource, SourceSide
from headwater.pipelines.time_travel.verify.table_comparison import ComparableSink, TableComparison
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable
from headwater.pipelines.transforms.after_log import RowTransforms


class Verifier:
    """Compares a source, the log and the targets, each pair at one moment."""

    def __init__(
        self,
        loaded: LoadedPipeline,
        log: Log,
        *,
        clock: Clock,
        is_running: bool,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._loaded, self._log, self._clock = loaded, log, clock
        self._is_running, self._note = is_running, note
        self._noted = set[str]()
        spec = loaded.spec
        self.after_log = RowTransforms(spec.transform, spec.route, directory=loaded.directory)

    async def verify(
        self,
        subjects: Sequence[ComparedTable],
        sides: ComparedSides,
        *,
        repairs: bool = False,
        is_whole: bool = False,
    ) -> list[TableVerdict]:
        """With `repairs` differing rows are rewritten and compared again. A table that cannot be
        repaired does not stop the others. `is_whole`: these are all tables of the log, so tables
        of the source that it lacks have verdicts, too."""
        first = await self._verify(subjects, sides, repairs_log=repairs, is_whole=is_whole)
        differing = [each for each in first if each.compared.differing]
        if not repairs or not differing:
            return first
        unrepaired: dict[tuple[str, str], str] = {}
        for verdict in differing:
            if not verdict.subject.schema.key:
                self._note(
                    f"{verdict.subject.target} has no key for a repair by row:"
                    " headwater rebuild PIPELINE/TABLE --swap makes the table again from the log"
                )
            elif verdict.side != SOURCE:
                unrepaired[verdict.name] = await self._repair(verdict)
            else:
                unrepaired[verdict.name] = verdict.unrepaired
        touched = [each for each in subjects if any(v.subject is each for v in differing)]
        again = {v.name: v for v in await self._verify(touched, sides, repairs_log=False)}
        after = [self._after_repair(each, again) for each in first]
        return [replace(each, unrepaired=unrepaired.get(each.name, "")) for each in after]

    async def _repair(self, verdict: TableVerdict) -> str:
        """Returns why the repair failed; empty if it succeeded."""
        try:
            await self._repair_target(verdict)
        except LogUnavailable:
            raise
        except Exception as error:
            return failed_verdict(verdict.subject, verdict.side, error).problem
        return ""

    def _after_repair(
        self, verdict: TableVerdict, again: Mapping[tuple[str, str], TableVerdict]
    ) -> TableVerdict:
        later = again.get(verdict.name, verdict)
        repaired = verdict.compared.differing - later.compared.differing
        return replace(later, repaired=0 if later.problem else max(repaired, 0))

    async def _repair_target(self, verdict: TableVerdict) -> None:
        check_few(verdict.compared, table=str(verdict.subject.target))
        part = next(part for part in self._loaded.sinks if part.name == verdict.side)
        sink = make_sink(self._loaded, part, clock=self._clock)
        repair = TargetRepair(
            verdict.subject, verdict.cut_point.ends, verdict.compared.keys, verdict.deleted
        )
        try:
            await repair_target(repair, sink, self._log, self.after_log)
        except RecordsRejected:
            if not _keeps_every_change(part, verdict.subject):
                raise
            self._note(
                f"{verdict.subject.target} keeps every change and cannot be repaired by row:"
                " headwater rebuild PIPELINE/TABLE --swap makes the table again from the log"
            )
        finally:
            await sink.close()

    async def _verify(
        self,
        subjects: Sequence[ComparedTable],
        sides: ComparedSides,
        *,
        repairs_log: bool,
        is_whole: bool = False,
    ) -> list[TableVerdict]:
        verdicts: list[TableVerdict] = []
        async with AsyncExitStack() as stack:
            sinks: dict[str, ComparableSink] = {}
            for part in self._loaded.sinks if sides.targets else ():
                if sides.only not in (None, part.name):
                    continue
                sink = make_sink(self._loaded, part, clock=self._clock)
                stack.push_async_callback(sink.close)
                if isinstance(sink, ComparableSink):
                    sinks[part.name] = sink
                else:
                    self._note(
                        f"{part.name}: a sink of type {part.kind} cannot be read back,"
                        " so it is not compared"
                    )
            of_source = await self._open_source(stack) if sides.source else None
            for subject in subjects:
                side = self._source_of(subject, of_source)
                if side is not None and (refusal := _refusal(side, subject)) is not None:
                    verdicts.append(failed_verdict(subject, SOURCE, refusal))
                    side = None
                verdicts += await self._verdicts(subject, side, sinks, repairs_log=repairs_log)
            if of_source is not None and is_whole:
                verdicts += await _lacking(of_source, subjects)
        return verdicts

    async def _verdicts(
        self,
        subject: ComparedTable,
        of_source: SourceSide | None,
        sinks: Mapping[str, ComparableSink],
        *,
        repairs_log: bool,
    ) -> list[TableVerdict]:
        return await TableComparison(
            self._loaded,
            self._log,
            self._clock,
            self.after_log,
            self._is_running,
            subject,
            of_source,
            sinks,
            repairs_log,
        ).verdicts()

    def _source_of(self, subject: ComparedTable, of_source: SourceSide | None) -> SourceSide | None:
        if of_source is None:
            return None
        if not all(of_source.snapshot.has_left(each.schema.table) for each in subject.sources):
            return of_source
        self._note(
            f"{subject.target} is no longer captured: its rows stay in targets, and are not "
            "compared with the source"
        )
        return None

    async def compare_target(
        self, subject: ComparedTable, name: str, sink: ComparableSink
    ) -> TableVerdict:
        """Compares one table of one sink."""
        [verdict] = await self._verdicts(subject, None, {name: sink}, repairs_log=False)
        return verdict

    def _hear(self, report: SourceReport) -> None:
        """Notes once what the source waits for before it can be read."""
        if isinstance(report, Remark) and report.finding is not None:
            said = f"{report.finding.problem}: {report.finding.hint}"
            if said not in self._noted:
                self._noted.add(said)
                self._note(said)

    async def _open_source(self, stack: AsyncExitStack) -> SourceSide | None:
        source = make_source(self._loaded, clock=self._clock, report=self._hear)
        if not isinstance(source, SnapshotableSource):
            kind = self._loaded.source.kind
            self._note(
                f"a source of type {kind} cannot be read at one position and is not compared"
            )
            return None
        positions = await load_positions(self._log, self._loaded.name)
        snapshot = await stack.enter_async_context(source.snapshot(source_parts(positions)))
        return SourceSide(
            self._loaded,
            self._log,
            self._clock,
            self.after_log,
            source,
            snapshot,
            self._is_running,
            last_replacements(positions),
        )


def _refusal(of_source: SourceSide, subject: ComparedTable) -> HeadwaterError | None:
    """Returns why the source does not capture the table now, although the file names it."""
    reasons = (of_source.snapshot.tables.get(each.schema.table, "") for each in subject.sources)
    reason = next(filter(None, reasons), "")
    return SourceRejected(f"the table is left out: {reason}") if reason else None


async def _lacking(of_source: SourceSide, subjects: Sequence[ComparedTable]) -> list[TableVerdict]:
    """Returns verdicts of tables of the source that the log does not have, but for empty ones."""
    known = {stored.schema.table for subject in subjects for stored in subject.sources}
    found: list[TableVerdict] = []
    for table, reason in of_source.snapshot.tables.items():
        if table not in known:
            missing = ComparedTable(table, TableSchema(table, (), ()), ())
            with outcomes(missing, [SOURCE], into=found):
                if reason:
                    raise _not_held(f"the table is left out: {reason}")
                if await _has_rows(of_source, table):
                    raise _not_held("the log does not have its rows yet")
    return found


def _not_held(why: str) -> SourceRejected:
    return SourceRejected(why, hint="headwater status says what its source does")


async def _has_rows(of_source: SourceSide, table: TableId) -> bool:
    batches: Any = of_source.snapshot.rows(table)
    async with aclosing(batches):
        async for batch in batches:
            if len(batch):
                return True
    return False


def _keeps_every_change(part: LoadedPart, subject: ComparedTable) -> bool:
    """Returns whether the target stores each change by its place in the log, so that a row cannot
    be repaired."""
    chosen = part.table_settings(subject.target)
    return bool(chosen and chosen.mode == "append")
