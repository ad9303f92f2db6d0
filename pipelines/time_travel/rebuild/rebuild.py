"""Fills a second copy of a target table from the log, and swaps it for the live one."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError, LogUnavailable, SinkUnavailable
from headwater.core_log.model.column_history import ColumnHistory
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.control import (
    RESTART,
    DesiredTaskState,
    Signal,
    pause_signal,
    read_desired,
    write_control,
)
from headwater.pipelines.journal.internal_topics import COMMITS
from headwater.pipelines.journal.replacements import beginnings_of, replacements_of
from headwater.pipelines.journal.schemas import StoredSchema, read_schemas, schemas_home
from headwater.pipelines.loops.assembly import delivery_of, keeps_rows, make_sink
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.pipelines.loops.deliver.offset_check import epoch_ends, lost_topics
from headwater.pipelines.reports import Report, RowsMoved, TaskRun
from headwater.pipelines.time_travel.history.cut_points import (
    CutPoint,
    commits_below,
    newest_cut_point,
)
from headwater.pipelines.time_travel.rebuild.replay import (
    ReplayReporter,
    begin_empty,
    fill_former,
    keeps_deleted,
    replay,
)
from headwater.pipelines.time_travel.verify.result import TableVerdict
from headwater.pipelines.time_travel.verify.table_comparison import ComparableSink
from headwater.pipelines.time_travel.verify.table_selection import (
    ComparedTable,
    subject_of,
    subjects_of,
)
from headwater.pipelines.time_travel.verify.verify import Verifier
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.functions import ship_modules
from headwater.pipelines.transforms.rows import RuleTables
from headwater.sinks.evolution import holds, is_strict_beside, toward
from headwater.sinks.sink import AppliedOffsets, CarryOver, Rebuildable, RebuildRecipe, Sink

POLL_S, QUIET_POLLS = 0.5, 4
"""A paused table finishes its slice in flight; its offsets must be unchanged in this many polls."""


async def nothing() -> None:
    """Nobody else writes to the table."""


async def nobody_begins() -> bool:
    """Nothing to check: a rebuild has the log for itself."""
    return False


@runtime_checkable
class RebuildableSink(Sink, Rebuildable, Protocol):
    """A sink that is rebuildable."""


@dataclass(frozen=True, slots=True)
class TableRebuild:
    """One table of one sink, and its topics."""

    loaded: LoadedPipeline
    part: LoadedPart
    subject: ComparedTable

    @property
    def target(self) -> TableId:
        return self.subject.target

    @property
    def sources(self) -> tuple[StoredSchema, ...]:
        return self.subject.sources

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self.subject.topics)


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """The choices of a rebuild about the copy."""

    swaps: bool = False
    verifies: bool = False
    """Whether the copy is compared with the log before any other step."""
    as_of: CutPoint | None = None
    """None: the present log. A table that is restored to a moment stays paused there."""


@dataclass(slots=True)
class RebuildResult:
    rows: int = 0
    kept: str = ""
    """The place of the old table after a swap."""
    verdict: TableVerdict | None = None
    is_paused: bool = False
    """Whether the live table was left paused."""


async def find_rebuilding(
    loaded: LoadedPipeline, log: Log, *, table: str, sink: str | None
) -> TableRebuild:
    """Finds `table` by its name at the target, or at the source."""
    subjects = await subjects_of(loaded, log)
    subject = subject_of(subjects, table, pipeline=loaded.name)
    return TableRebuild(loaded, _part(loaded, sink), subject)


async def rebuild(
    rebuilding: TableRebuild,
    log: Log,
    wanted: RebuildOptions,
    *,
    is_running: bool,
    clock: Clock,
    reporter: Callable[[Report], None],
    replay_reporter: ReplayReporter = lambda _: None,
    before_swap: Callable[[], Awaitable[None]] = nothing,
    runs_by_now: Callable[[], Awaitable[bool]] = nobody_begins,
) -> RebuildResult:
    """Rebuilds a table while the live one continues.

    For the swap the live table is paused at its offsets, the copy catches up, and the running
    process reads its tables' offsets again. A sink that rebuilds its own table is stopped by
    `before_swap` instead. `runs_by_now` is asked before the swap: filling may take hours.
    """
    loaded, part = rebuilding.loaded, rebuilding.part
    async with AsyncExitStack() as stack:
        stack.enter_context(_alone_with(loaded, part, rebuilding.target))
        live = rebuildable(rebuilding, clock=clock)
        stack.push_async_callback(live.close)
        shadow = await _open_copy(rebuilding, live, await _recipe(rebuilding, wanted, log), log)
        stack.push_async_callback(shadow.close)
        rebuilt = RebuildResult()
        if wanted.as_of is None:
            await _fill_former(rebuilding, live, shadow, log, clock=clock)
            await _fill(rebuilding, shadow, log, rebuilt, clock=clock, reporter=reporter)
        else:
            rebuilt.rows = await _fill_to(
                rebuilding, shadow, log, wanted.as_of, clock=clock, reporter=replay_reporter
            )
        if wanted.verifies:
            rebuilt.verdict = await verify_copy(rebuilding, shadow, log, clock=clock)
            if not rebuilt.verdict.is_as_told:
                return rebuilt
        if wanted.swaps:
            is_running = is_running or await runs_by_now()
        if wanted.swaps and wanted.as_of is None:
            await _fill(rebuilding, shadow, log, rebuilt, clock=clock, reporter=reporter)
            await before_swap()
            await _swap(rebuilding, live, shadow, log, rebuilt, is_running, clock, reporter)
        elif wanted.swaps and wanted.as_of is not None:
            await _swap_in_past(rebuilding, live, log, wanted.as_of, rebuilt, is_running, clock)
    return rebuilt


@contextmanager
def _alone_with(loaded: LoadedPipeline, part: LoadedPart, table: TableId) -> Iterator[None]:
    """Holds a lock in the data directory, which ends with the process: two rebuilds with different
    rules would remove each other's copy. The next one continues a killed one's copy."""
    files, name = OsFiles(), repr((loaded.name, part.name, table))
    files.make_directory(loaded.log_path)
    path = loaded.log_path / f"rebuild-{sha256(name.encode()).hexdigest()[:16]}.lock"
    lock = files.lock(path)
    if lock is None:
        raise SinkUnavailable(
            "another rebuild of this table is running",
            table=str(table),
            sink=part.name,
            hint=f"try again when it has ended; its process id is in {path}",
        )
    try:
        yield
    finally:
        del lock


async def _open_copy(
    rebuilding: TableRebuild, live: RebuildableSink, recipe: RebuildRecipe, log: Log
) -> Sink:
    """Returns the copy, begun anew if the log cannot continue it: the log may have been restored,
    or have removed deletes since."""
    shadow = await live.shadow(recipe)
    try:
        offsets = _data_of(rebuilding, await shadow.committed_offsets(sorted(rebuilding.topics)))
        ids = {part.topic: await log.topic_id(part.topic) for part in offsets}
        ends, bounds = await epoch_ends(log, offsets), await log.bounds([*offsets])
        if not lost_topics(offsets, bounds, ids, ends):
            return shadow
    except BaseException:
        await shadow.close()
        raise
    await shadow.close()
    return await live.shadow(replace(recipe, rules=f"{recipe.rules} {secrets.token_hex(8)}"))


def rebuildable(rebuilding: TableRebuild, *, clock: Clock) -> RebuildableSink:
    """Returns the sink of the live table, before any access to the target."""
    part = rebuilding.part
    live = make_sink(rebuilding.loaded, part, clock=clock)
    if not isinstance(live, RebuildableSink):
        raise ConfigError(
            "a sink of this type cannot make a second copy of a table",
            hint="drop the pipeline's data there and run again: everything is delivered again",
            sink=part.name,
            type=part.kind,
        )
    return live


async def rebuild_elsewhere(
    rebuilding: TableRebuild,
    log: Log,
    wanted: RebuildOptions,
    *,
    clock: Clock,
    replay_reporter: ReplayReporter = lambda _: None,
) -> RebuildResult:
    """Rebuilds into a target without a pipeline; `rebuilding.part` names it."""
    sink = make_sink(rebuilding.loaded, rebuilding.part, clock=clock)
    try:
        partitions = await rebuilding.subject.partitions(log)
        cut_point = wanted.as_of or await newest_cut_point(log, partitions)
        rows = await _fill_to(
            rebuilding, sink, log, cut_point, clock=clock, reporter=replay_reporter
        )
        rebuilt = RebuildResult(rows)
        if wanted.verifies:
            rebuilt.verdict = await verify_copy(rebuilding, sink, log, clock=clock)
        return rebuilt
    finally:
        await sink.close()


async def verify_copy(
    rebuilding: TableRebuild, sink: Sink, log: Log, *, clock: Clock
) -> TableVerdict:
    """Compares the copy with a second fold of the log, which shares only the decoding with the
    first."""
    if not isinstance(sink, ComparableSink):
        raise ConfigError(
            "a sink of this type cannot be read back",
            sink=rebuilding.part.name,
            type=rebuilding.part.kind,
        )
    verifier = Verifier(rebuilding.loaded, log, clock=clock, is_running=False)
    return await verifier.compare_target(rebuilding.subject, rebuilding.part.name, sink)


async def _fill_to(
    rebuilding: TableRebuild,
    sink: Sink,
    log: Log,
    cut_point: CutPoint,
    *,
    clock: Clock,
    reporter: ReplayReporter,
) -> int:
    """Fills up to a moment, if compaction has left it whole until the end."""
    start = dict.fromkeys(cut_point.ends, 0)
    loaded, part = rebuilding.loaded, rebuilding.part
    return await replay(
        loaded,
        part,
        sink,
        log,
        start=start,
        end=cut_point.ends,
        clock=clock,
        as_of=cut_point,
        reporter=reporter,
    )


async def _swap_in_past(
    rebuilding: TableRebuild,
    live: "RebuildableSink",
    log: Log,
    cut_point: CutPoint,
    rebuilt: RebuildResult,
    is_running: bool,
    clock: Clock,
) -> None:
    """Swaps in a past state; on resume the sink applies all later changes."""
    await _send_pause(rebuilding, log, clock=clock)
    rebuilt.is_paused = True
    await _wait_settled(rebuilding, live, is_running=is_running)
    commits = await commits_below(log, rebuilding.loaded.name, cut_point.ends)
    until_ms = max((each.committed_ms for each in commits.values()), default=0)
    carry_over = CarryOver(rebuilding.subject.schema.key, until_ms * 1_000 + 999)
    rebuilt.kept = await live.swap(rebuilding.target, carry_over)
    if is_running:
        await _send_restart(rebuilding, log, clock=clock)


async def _fill_former(
    rebuilding: TableRebuild, live: Sink, shadow: Sink, log: Log, *, clock: Clock
) -> None:
    beginnings = await beginnings_in(rebuilding, log)
    if beginnings and keeps_deleted(rebuilding.part, rebuilding.target):
        await fill_former(
            rebuilding.loaded,
            rebuilding.part,
            shadow,
            log,
            rebuilding.subject.schema,
            live=_data_of(rebuilding, await live.committed_offsets(sorted(rebuilding.topics))),
            beginnings=beginnings,
            clock=clock,
        )


async def _fill(
    rebuilding: TableRebuild,
    shadow: Sink,
    log: Log,
    rebuilt: RebuildResult,
    *,
    clock: Clock,
    reporter: Callable[[Report], None],
) -> None:
    """Fills up to the present end of the log."""

    def count(report: Report) -> None:
        if isinstance(report, RowsMoved):
            rebuilt.rows += report.rows
        reporter(report)

    loaded, beginnings = rebuilding.loaded, await beginnings_in(rebuilding, log)
    desired = DesiredTaskState(loaded.name)
    task = TaskRun(loaded, rebuilding.part.name, log, lambda: desired, clock, report=count)
    delivery = delivery_of(
        task,
        rebuilding.part,
        shadow,
        topics=rebuilding.topics,
        beginnings=beginnings,
        before_dead_letters=partial(check_rejected, rebuilding, log, beginnings),
    )
    await deliver(delivery, until_end=True)
    await check_form(rebuilding, log)
    await begin_empty(shadow, rebuilding.subject.schema, log, beginnings)


async def check_form(rebuilding: TableRebuild, log: Log) -> None:
    """Raises if the table has a form whose values the copy does not hold: the copy was begun for
    the form of that time, and rejects them."""
    begun = rebuilding.subject.schema
    found = await find_rebuilding(
        rebuilding.loaded, log, table=str(rebuilding.target), sink=rebuilding.part.name
    )
    if toward(found.subject.schema, begun) != found.subject.schema:
        raise LogUnavailable(
            "the table got another form while its copy was filled",
            hint="run it again: the copy is made anew",
            table=str(rebuilding.target),
        )


async def check_rejected(
    rebuilding: TableRebuild, log: Log, begun: Mapping[TopicPartition, int]
) -> None:
    """Raises if the copy cannot be blamed for not holding a record: the table has another form, or
    is read again, or was since the copy was `begun`. It may have had another form meanwhile."""
    await check_form(rebuilding, log)
    positions = await load_positions(log, rebuilding.loaded.name)
    is_read_again = replacements_of(positions).keys() & {
        stored.schema.table for stored in rebuilding.sources
    }
    if is_read_again or begun != await beginnings_in(rebuilding, log):
        raise LogUnavailable(
            "the table was read again while its copy was filled",
            hint="run it again: the copy is made anew",
            table=str(rebuilding.target),
        )


async def beginnings_in(rebuilding: TableRebuild, log: Log) -> Mapping[TopicPartition, int]:
    """Returns the offsets at which the copy begins, other than 0.

    A table that keeps no history needs nothing older than the last re-read of its source; its
    deleted rows are carried over. A history is read whole, unless older values may not fit the
    present types: then its older versions stay in the old table.
    """
    is_history = not keeps_rows(rebuilding.part, rebuilding.subject.schema)
    if is_history and await _holds_older_types(rebuilding, log):
        return {}
    positions = await load_positions(log, rebuilding.loaded.name)
    ids = {topic: await log.topic_id(topic) for topic in rebuilding.topics}
    return beginnings_of(positions, ids)


async def _holds_older_types(rebuilding: TableRebuild, log: Log) -> bool:
    """Returns whether the present types hold the values of every former type of the columns."""
    loaded, newest = rebuilding.loaded, rebuilding.subject.schema
    spec = loaded.spec
    after_log = RowTransforms(spec.transform, spec.route, directory=loaded.directory)
    for topic in rebuilding.topics:
        home = schemas_home(topic)
        stored = [each.schema async for each in read_schemas(log, home) if each.topic == topic]
        for view in ColumnHistory(stored).views:
            for column in after_log.schema(view.schema).columns:
                if column.name in newest.names and not _holds(newest, column):
                    return False
    return True


def _holds(newest: TableSchema, former: Column) -> bool:
    column = newest.column(former.name)
    if is_strict_beside(column, former):
        return False
    return pa.types.is_string(column.type) or holds(column.type, former.type)


async def _swap(
    rebuilding: TableRebuild,
    live: "RebuildableSink",
    shadow: Sink,
    log: Log,
    rebuilt: RebuildResult,
    is_running: bool,
    clock: Clock,
    reporter: Callable[[Report], None],
) -> None:
    sent = await _send_pause(rebuilding, log, clock=clock) if is_running else frozenset()
    try:
        offsets = await _wait_settled(rebuilding, live, is_running=is_running)
        await _fill(rebuilding, shadow, log, rebuilt, clock=clock, reporter=reporter)
        copied = await shadow.committed_offsets(sorted(rebuilding.topics))
        await _check_reached(rebuilding, copied, offsets, log)
        carry_over = CarryOver(rebuilding.subject.schema.key)
        rebuilt.kept = await live.swap(rebuilding.target, carry_over)
    finally:
        if is_running:  # restarted first, because the sink has cached the old table's offsets
            await _send_restart(rebuilding, log, clock=clock)
            await _lift_pause(rebuilding, log, sent, clock=clock)


async def _send_restart(rebuilding: TableRebuild, log: Log, *, clock: Clock) -> None:
    """Sends a restart: the running sink has cached the old table's offsets."""
    signal = Signal(RESTART, "", secrets.token_hex(8))
    await write_control(log, rebuilding.loaded.name, [signal], now_ms=clock.now_ms())


async def _send_pause(rebuilding: TableRebuild, log: Log, *, clock: Clock) -> frozenset[str]:
    """Pauses the tables that nobody has paused; returns the ids of these pauses."""
    pipeline = rebuilding.loaded.name
    paused = (await read_desired(log, pipeline)).paused_tables
    tables = {str(stored.schema.table) for stored in rebuilding.sources} - paused
    signals = [
        pause_signal(table=table, is_paused=True, id=secrets.token_hex(8))
        for table in sorted(tables)
    ]
    await write_control(log, pipeline, signals, now_ms=clock.now_ms())
    return frozenset(signal.id for signal in signals)


async def _lift_pause(
    rebuilding: TableRebuild, log: Log, sent: Collection[str], *, clock: Clock
) -> None:
    """Lifts the pauses that were sent, and none that a person has set, before or since."""
    pipeline = rebuilding.loaded.name
    signals = [
        pause_signal(table=signal.table, is_paused=False, id=secrets.token_hex(8))
        for signal in (await read_desired(log, pipeline)).signals
        if signal.id in sent
    ]
    await write_control(log, pipeline, signals, now_ms=clock.now_ms())


async def _wait_settled(
    rebuilding: TableRebuild, live: Sink, *, is_running: bool
) -> AppliedOffsets:
    """Returns the live table's offsets after it has stopped."""
    topics = [*sorted(rebuilding.topics), COMMITS]
    offsets = _data_of(rebuilding, await live.committed_offsets(topics))
    quiet = 0
    while is_running and quiet < QUIET_POLLS:
        await asyncio.sleep(POLL_S)
        now = _data_of(rebuilding, await live.committed_offsets(topics))
        quiet, offsets = (quiet + 1 if now == offsets else 0), now
    return offsets


async def _recipe(rebuilding: TableRebuild, wanted: RebuildOptions, log: Log) -> RebuildRecipe:
    """Returns the copy's recipe. A past table's schema is unknown before it is read.

    A table can have the same schema again in another topic, or after another re-read: a copy that
    was begun before has other rows, or comes to rows of a form that it does not hold.
    """
    newest = None if wanted.as_of is not None else rebuilding.subject.schema
    loaded = rebuilding.loaded
    tables = [stored.schema.table for stored in rebuilding.sources]
    rules = [
        rule.model_dump_json()
        for rule in loaded.spec.transform
        if any(map(RuleTables(rule).match, tables))
    ]
    routes = [rule.model_dump_json() for rule in loaded.spec.route]
    functions = [rule.python.partition(":")[0] for rule in loaded.spec.transform if rule.python]
    kept = rebuilding.part.table_settings(rebuilding.target) or rebuilding.part.settings
    decides = [
        *rules,
        *routes,
        sorted(ship_modules(tuple(functions), loaded.directory).files.items()),
        sorted(loaded.spec.schema_changes.policies.items()),
        kept.model_dump_json(),
        [(topic, await log.topic_id(topic)) for topic in sorted(rebuilding.topics)],
        [] if wanted.as_of is None else sorted(wanted.as_of.ends.items()),
        sorted((await beginnings_in(rebuilding, log)).items()),
    ]
    return RebuildRecipe(rebuilding.target, newest, repr(decides))


def _data_of(rebuilding: TableRebuild, offsets: AppliedOffsets | None) -> AppliedOffsets:
    return {part: at for part, at in (offsets or {}).items() if part.topic in rebuilding.topics}


async def _check_reached(
    rebuilding: TableRebuild, copy: AppliedOffsets | None, live: AppliedOffsets, log: Log
) -> None:
    """Raises if the copy is older than the table that it replaces. Offsets of a recreated topic,
    beyond the log's end, or of a state from before its restore cannot be compared: they are of
    another log."""
    reached = _data_of(rebuilding, copy)
    ids = {partition.topic: applied.topic_id for partition, applied in reached.items()}
    same = {
        part: at for part, at in live.items() if ids.get(part.topic, at.topic_id) == at.topic_id
    }
    bounds, ends = await log.bounds([*same]), await epoch_ends(log, same)
    for partition, applied in same.items():
        end = bounds[partition].end
        if applied.next_offset > min(end, ends.get(partition, end)):
            continue
        if partition not in reached or reached[partition].next_offset < applied.next_offset:
            raise LogUnavailable(
                "the copy has not reached the live table's offsets",
                hint="run it again: the copy continues at its offsets",
                topic=partition.topic,
                partition=partition.partition,
            )


def _part(loaded: LoadedPipeline, sink: str | None) -> LoadedPart:
    found = [part for part in loaded.sinks if sink in (None, part.name)]
    if len(found) == 1:
        return found[0]
    if not loaded.sinks:
        hint = "add one to the file: headwater explain lists their types"
        raise ConfigError("the pipeline has no sink", hint=hint, pipeline=loaded.name)
    raise ConfigError(
        "the pipeline does not have this sink" if sink else "the pipeline has several sinks",
        hint="say which: --sink " + ", ".join(part.name for part in loaded.sinks),
        pipeline=loaded.name,
    )
