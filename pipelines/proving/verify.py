"""Compares a source, the log and the targets, each two of them at one moment, in columns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from connectors.source import Snapshot, Snapshotable, Source
from core_log.changes import Operation, TableChanges
from core_log.clock import Clock
from core_log.errors import HeadwaterError, LogUnavailable, PositionLost
from core_log.log import Log, TopicPartition
from core_log.rows.codecs import codec_for
from pipelines.file.loading import LoadedPipeline
from pipelines.journal.positions import load_positions
from pipelines.loops.build import make_sink, make_source, wire_of
from pipelines.loops.busy_work import beside
from pipelines.proving.as_of import STREAM, before, order_of
from pipelines.proving.comparing import Compared, Comparison, Kind
from pipelines.proving.folding import Fold, Shape
from pipelines.proving.moments import Moment, check_exact, moment_of, newest_moment
from pipelines.proving.newest import keys_at
from pipelines.proving.repairing import TargetRepair, check_few, repair_target
from pipelines.proving.source_repair import SourceRepair, repair_log
from pipelines.proving.subjects import Subject
from pipelines.transforms.after_log import AfterLog
from pipelines.transforms.before_log import BeforeLog, salt_of
from sinks.sink import Comparable, Contents, Sink

SOURCE = "source"
KEYS_NAMED = 20
"""Differing keys that are named, of each comparison."""
REACH_MS, REACH_POLL_S = 60_000, 0.25
"""How long the log may take to come to where the source was read."""
LOOKS = 3
"""How often a source without positions is read, before what differs counts as different."""
LOOK_PAUSE_MS_MAX = 30_000


@runtime_checkable
class SnapshotableSource(Source, Snapshotable, Protocol):
    """Both at once."""


@runtime_checkable
class ComparableSink(Sink, Comparable, Protocol):
    """Both at once."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared with the log."""

    source: bool = True
    targets: bool = True
    only: str | None = None
    """Of the targets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One table of one side, compared with the log."""

    subject: Subject
    side: str
    """`source`, or the sink's name."""
    shape: Shape
    moment: Moment
    compared: Compared
    named: Sequence[Mapping[str, Any]] = ()
    """The first of the differing keys, and what is wrong with them."""
    left_out: tuple[str, ...] = ()
    """Columns that this side does not give back as they were."""
    problem: str = ""
    """Why it could not be compared."""
    took_ms: int = 0
    mended: int = 0
    """Rows that were written anew before this comparison."""

    @property
    def is_equal(self) -> bool:
        return not self.problem and not self.compared.differing


@dataclass(frozen=True, slots=True)
class _OfSource:
    """The source as it is read for all tables."""

    snapshot: Snapshot
    source: SnapshotableSource


class Verifier:
    """One run of `verify`. Rows go through the pipeline's own transforms and codec."""

    def __init__(
        self,
        loaded: LoadedPipeline,
        log: Log,
        *,
        clock: Clock,
        is_running: bool,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._loaded, self._log, self._clock = loaded, log, clock
        self._is_running, self._tell = is_running, tell
        spec = loaded.spec
        self.after_log = AfterLog(spec.transform, spec.route, directory=loaded.directory)
        self._before_log = BeforeLog(spec.transform, salt=salt_of(spec.pipeline))
        self._mends_log = False

    async def verify(
        self, subjects: Sequence[Subject], sides: Sides, *, mends: bool = False
    ) -> list[Verdict]:
        """With `mends` what differs is written anew and compared again."""
        self._mends_log = mends
        first = await self._verify(subjects, sides)
        differing = [each for each in first if each.compared.differing]
        if not mends or not differing:
            return first
        for verdict in differing:
            if verdict.side != SOURCE:
                await self._mend_target(verdict)
        self._mends_log = False
        touched = [each for each in subjects if any(v.subject is each for v in differing)]
        again = {(str(v.subject.target), v.side): v for v in await self._verify(touched, sides)}
        return [self._after_mending(each, again) for each in first]

    def _after_mending(self, verdict: Verdict, again: Mapping[tuple[str, str], Verdict]) -> Verdict:
        later = again.get((str(verdict.subject.target), verdict.side), verdict)
        mended = verdict.compared.differing - later.compared.differing
        return replace(later, mended=max(mended, 0))

    async def _mend_target(self, verdict: Verdict) -> None:
        check_few(verdict.compared, table=str(verdict.subject.target))
        part = next(part for part in self._loaded.sinks if part.name == verdict.side)
        sink = make_sink(self._loaded, part, clock=self._clock)
        repair = TargetRepair(verdict.subject, verdict.moment.ends, verdict.compared.keys)
        try:
            await repair_target(repair, sink, self._log, self.after_log)
        finally:
            await sink.close()

    async def _mend_log(
        self, subject: Subject, shape: Shape, moment: Moment, compared: Compared, of: Snapshot
    ) -> None:
        """While the snapshot that it was compared with is still open."""
        check_few(compared, table=str(subject.target))
        for stored in subject.sources:
            repair = SourceRepair(
                self._loaded,
                stored,
                shape,
                self.after_log,
                {part: end for part, end in moment.ends.items() if part.topic == stored.topic},
                compared.keys,
            )
            await repair_log(repair, of, self._log, clock=self._clock)

    async def _verify(self, subjects: Sequence[Subject], sides: Sides) -> list[Verdict]:
        verdicts: list[Verdict] = []
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
                    self._tell(f"{part.name}: what a sink of type {part.kind} has written cannot"
                               " be read back, so it is not compared")  # fmt: skip
            of_source = await self._open_source(stack) if sides.source else None
            for subject in subjects:
                if not subject.schema.key:
                    self._tell(f"{subject.target} has no key, so it is not compared")
                    continue
                verdicts += await self._one(subject, of_source, sinks)
        return verdicts

    async def compare_target(self, subject: Subject, name: str, sink: ComparableSink) -> Verdict:
        """One table of one sink."""
        [verdict] = await self._one(subject, None, {name: sink})
        return verdict

    async def _open_source(self, stack: AsyncExitStack) -> _OfSource | None:
        source = make_source(self._loaded, clock=self._clock)
        if not isinstance(source, SnapshotableSource):
            kind = self._loaded.source.kind
            self._tell(f"a source of type {kind} cannot be read at one position: it is left out")
            return None
        reached = await load_positions(self._log, self._loaded.name)
        snapshot = await stack.enter_async_context(source.snapshot(reached))
        return _OfSource(snapshot, source)

    async def _one(
        self, subject: Subject, of_source: _OfSource | None, sinks: Mapping[str, ComparableSink]
    ) -> list[Verdict]:
        async with AsyncExitStack() as stack:
            opened: dict[str, Contents] = {}
            failed: list[Verdict] = []
            for name, sink in sinks.items():
                try:
                    contents = sink.contents(subject.schema, subject.topics)
                    opened[name] = await stack.enter_async_context(contents)
                except HeadwaterError as error:
                    failed.append(_failed(subject, name, error))
            verdicts: list[Verdict] = []
            moments = await self._moments(subject, of_source, opened, failed)
            for columns in dict.fromkeys(
                opened[name].columns if name in opened else subject.schema.names for name in moments
            ):
                chosen = {
                    name: moment
                    for name, moment in moments.items()
                    if (opened[name].columns if name in opened else subject.schema.names) == columns
                }
                verdicts += await self._fold_and_compare(
                    subject, Shape(subject.schema, columns), chosen, opened, of_source
                )
        return [*failed, *verdicts]

    async def _moments(
        self,
        subject: Subject,
        of_source: _OfSource | None,
        opened: Mapping[str, Contents],
        failed: list[Verdict],
    ) -> dict[str, Moment]:
        """Up to where the log has to be read for each side."""
        partitions = await subject.partitions(self._log)
        moments: dict[str, Moment] = {}
        if of_source is not None:
            try:
                moments[SOURCE] = await self._moment_of_source(of_source.snapshot, partitions)
            except HeadwaterError as error:
                failed.append(_failed(subject, SOURCE, error))
        for name, contents in opened.items():
            try:
                moments[name] = await self._moment_of_target(contents, partitions)
            except HeadwaterError as error:
                failed.append(_failed(subject, name, error))
        return moments

    async def _moment_of_source(
        self, snapshot: Snapshot, partitions: Sequence[TopicPartition]
    ) -> Moment:
        if not snapshot.positions:
            return await newest_moment(self._log, partitions)
        position = snapshot.positions[STREAM]
        await self._reach(position)
        as_of = before(position)
        return await moment_of(self._log, self._loaded.name, as_of, partitions)

    async def _reach(self, position: str) -> None:
        """Waits until the log has all that came before."""
        wanted = order_of(position)
        if wanted is None:
            before(position)  # which says so
        deadline = self._clock.monotonic_ms() + (REACH_MS if self._is_running else 0)
        while True:
            reached = (await load_positions(self._log, self._loaded.name)).get(STREAM, "")
            order = order_of(reached)
            if order is not None and wanted is not None and order >= wanted:
                return
            if self._clock.monotonic_ms() >= deadline:
                raise LogUnavailable(
                    "the log has not come to where the source is",
                    hint="try again when it has caught up: headwater status"
                    if self._is_running
                    else f"run the pipeline: headwater run {self._loaded.path.name}",
                    source=position,
                    log=reached,
                )
            await asyncio.sleep(REACH_POLL_S)

    async def _moment_of_target(
        self, contents: Contents, partitions: Sequence[TopicPartition]
    ) -> Moment:
        ids = {part.topic: await self._log.topic_id(part.topic) for part in partitions}
        for partition, stand in contents.stands.items():
            if partition.topic in ids and stand.topic_id != ids[partition.topic]:
                raise PositionLost(
                    "the table was filled from another topic of this name, which is gone",
                    hint="headwater rebuild makes the table anew from what the log holds",
                    topic=partition.topic,
                )
        ends = {
            part: contents.stands[part].next_offset if part in contents.stands else 0
            for part in partitions
        }
        named = ",".join(f"{part.partition}:{end}" for part, end in ends.items())
        moment = Moment(ends, f"offset {named}")
        if any(ends.values()):
            await check_exact(self._log, self._loaded.name, moment)
        return moment

    async def _fold_and_compare(
        self,
        subject: Subject,
        shape: Shape,
        moments: Mapping[str, Moment],
        opened: Mapping[str, Contents],
        of_source: _OfSource | None,
    ) -> list[Verdict]:
        began_ms = self._clock.monotonic_ms()
        fold = Fold(
            self._log,
            shape,
            after_log=self.after_log,
            fetch_bytes=self._loaded.spec.limits.fetch_size_bytes,
        )
        states = await fold.states([moment.ends for moment in moments.values()])
        verdicts: list[Verdict] = []
        for (name, moment), state in zip(moments.items(), states, strict=True):
            if name == SOURCE:
                assert of_source is not None, "only a source that was opened has a moment"
                comparison = Comparison(state, shape, keeps_deleted=False)
                rows = self._rows_of_source(subject, of_source.snapshot)
                compared = await _compared(comparison, rows, shape)
                compared = await self._looked_again(subject, of_source, shape, compared)
                if not of_source.snapshot.sees_deletes:
                    compared = _without_missing(compared)
                if self._mends_log and compared.differing:
                    await self._mend_log(subject, shape, moment, compared, of_source.snapshot)
            else:
                contents = opened[name]
                comparison = Comparison(state, shape, keeps_deleted=contents.keeps_deleted)
                compared = await _compared(comparison, contents.batches, shape)
            left_out = tuple(set(subject.schema.names) - set(shape.columns))
            took_ms = self._clock.monotonic_ms() - began_ms
            verdict = Verdict(subject, name, shape, moment, compared, (), left_out, "", took_ms)
            verdicts.append(replace(verdict, named=await self._named(verdict)))
        return verdicts

    async def _looked_again(
        self, subject: Subject, of_source: _OfSource, shape: Shape, compared: Compared
    ) -> Compared:
        """A source that cannot say where it stood was read a moment before or after the log: what
        differs only in passing is no difference."""
        if of_source.snapshot.positions or not self._is_running:
            return compared
        pause_ms = min(getattr(self._loaded.source.settings, "every_ms", 0), LOOK_PAUSE_MS_MAX)
        for _ in range(LOOKS - 1):
            if not compared.differing:
                break
            await asyncio.sleep(pause_ms * 2 / 1_000)
            reached = await load_positions(self._log, self._loaded.name)
            async with of_source.source.snapshot(reached) as snapshot:
                partitions = await subject.partitions(self._log)
                ends = (await newest_moment(self._log, partitions)).ends
                fetch_bytes = self._loaded.spec.limits.fetch_size_bytes
                fold = Fold(self._log, shape, after_log=self.after_log, fetch_bytes=fetch_bytes)
                [state] = await fold.states([ends])
                rows = self._rows_of_source(subject, snapshot)
                again = await _compared(Comparison(state, shape), rows, shape)
            compared = again.unchanged_since(compared)
        return compared

    async def _rows_of_source(
        self, subject: Subject, snapshot: Snapshot
    ) -> AsyncIterator[pa.RecordBatch]:
        """Through everything that rows go through on their way into a target."""
        for stored in subject.sources:
            codec = codec_for(wire_of(self._loaded), topic=stored.topic)

            def through(changes: TableChanges, codec: Any = codec) -> list[TableChanges]:
                changes = self._before_log.apply(changes)
                encoded = codec.encode(changes, now_us=self._clock.now_ms() * 1_000)
                decoded = codec.decode(encoded.keys, encoded.values, changes.schema)
                return self.after_log.apply(decoded)

            async for changes in snapshot.rows(stored.schema.table):
                if not len(changes):
                    continue
                for each in await beside(partial(through, changes), changes.rows.nbytes):
                    is_there = pc.not_equal(each.operations, int(Operation.DELETE))
                    yield each.filter(is_there).rows

    async def _named(self, verdict: Verdict) -> list[Mapping[str, Any]]:
        found = list(verdict.compared.keys.values())[:KEYS_NAMED]
        unnamed = [each.place for each in found if each.key is None and each.place is not None]
        keys = await keys_at(self._log, unnamed, self.after_log, verdict.shape)
        return [
            {"key": keys.get(each.place) if each.key is None and each.place else each.key,
             "problem": each.kind.value}
            for each in found
        ]  # fmt: skip


async def _compared(
    comparison: Comparison, batches: AsyncIterator[pa.RecordBatch], shape: Shape
) -> Compared:
    async for batch in batches:
        if batch.num_rows:
            await beside(partial(_take, comparison, shape, batch), batch.nbytes)
    return comparison.finish()


def _take(comparison: Comparison, shape: Shape, batch: pa.RecordBatch) -> None:
    comparison.take(shape.projected(batch))


def _failed(subject: Subject, side: str, error: HeadwaterError) -> Verdict:
    shape = Shape(subject.schema, subject.schema.names)
    return Verdict(subject, side, shape, Moment({}, ""), Compared(0), problem=str(error))


def _without_missing(compared: Compared) -> Compared:
    """Rows that the source has deleted, and will never say so."""
    kept = {at: found for at, found in compared.keys.items() if found.kind is not Kind.MISSING}
    return replace(compared, counts={**compared.counts, Kind.MISSING: 0}, keys=kept)
