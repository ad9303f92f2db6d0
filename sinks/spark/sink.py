"""The `spark` sink: slices of the log to tables of a lake, each by one commit of the table."""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pyarrow as pa

from headwater.core_log.foundation.errors import (
    ConfigError,
    Cure,
    Diagnostic,
    Fenced,
    HeadwaterError,
    SinkRejected,
    SinkUnavailable,
    failure_of,
    failures_named,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.object_names import OWN
from headwater.sinks.sink import (
    AppliedOffset,
    AppliedOffsets,
    CarryOver,
    MaintenanceFailed,
    RebuildRecipe,
    SinkContext,
    Slice,
    TableContents,
    TableVersion,
    check_no_delete_was_missed,
)
from headwater.sinks.spark.column_types import spark_type
from headwater.sinks.spark.driver_plan import BadRecords
from headwater.sinks.spark.lake import Lake, LakeShadow
from headwater.sinks.spark.lake_table_writer import (
    ATTEMPTS_MAX,
    LakeTableWriter,
    TableSlice,
    check_offset,
    farthest,
)
from headwater.sinks.spark.maintenance import health_of
from headwater.sinks.spark.session import in_thread
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink_state import PassedRange, SinkState, next_entry
from headwater.sinks.spark.table import LakeTableState
from headwater.sinks.spark.work_split import TableWork, WorkSplit, of_topics

logger = logging.getLogger(__name__)


class SparkSink:
    """Keeps tables of a lake equal to the source's, exactly once.

    A lake has no commit over several tables: each table has its own commits and stores its own
    offsets. The finished parts of an interrupted slice are not applied again.
    """

    Settings = SparkSettings

    def __init__(
        self, settings: SparkSettings, context: SinkContext, *, shadow: LakeShadow | None = None
    ) -> None:
        self._settings, self._context = settings, context
        self._lake = Lake(settings, context, shadow)
        self._state_log = self._lake.state_log()
        self._work_split = WorkSplit(settings, self._lake.table)
        self._writer = uuid4().hex
        self._reported: dict[TopicPartition, AppliedOffset] = {}
        """The offsets that this sink last reported for its tables."""
        self._done: dict[TopicPartition, tuple[AppliedOffset, AppliedOffset]] = {}
        """The parts of an interrupted slice that this sink has committed."""
        self._maintained_ms: int | None = None

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        from headwater.sinks.spark.session import warn_without_java

        warn_without_java()
        found = await in_thread(partial(self._read_offsets, frozenset(topics)))
        self._reported, self._done = dict(found), {}
        return found

    async def apply(self, part: Slice) -> None:
        left = self._remaining(part)
        head = await in_thread(self._state_log.head)
        table_works = await self._work_split.of(left, head)
        await in_thread(partial(self._check_idle, left, head, table_works))
        head = await in_thread(partial(self._announce, left, table_works))
        await self._commit(left, head, table_works)
        await in_thread(partial(self._settle, part, table_works))
        self._reported |= part.end
        self._done = {}
        await self._maintain_when_due()

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        found = []
        for schema in schemas:
            mode = self._settings.of(str(schema.table)).mode if schema.key else "append"
            table_writer = self._lake.table(schema.table)
            kind, root = self._settings.format, table_writer.place.root
            how = await in_thread(partial(table_writer.waits_for_rebuild, has_key=bool(schema.key)))
            about = f"keep table {schema.table} as {kind} in mode {mode} under {root}"
            if how is not None:
                found += [about, self._waits(schema.table, how)]
                continue
            columns = await in_thread(partial(_planned_columns, table_writer, schema))
            found.append("\n".join([f"{about}:", *(f"  {line}" for line in columns)]))
        return found

    async def examine(self) -> Sequence[Diagnostic]:
        return await in_thread(self._examine)

    async def drop(self) -> Sequence[str]:
        return await in_thread(self._drop)

    async def drop_table(self, table: TableId, topics: Collection[str]) -> Sequence[str]:
        return await in_thread(partial(self._drop_table, table, frozenset(topics)))

    async def shadow(self, recipe: RebuildRecipe) -> "SparkSink":
        from headwater.sinks.spark.rebuild import shadow_of

        shadow = await in_thread(partial(shadow_of, self._lake, recipe))
        return SparkSink(self._settings, self._context, shadow=shadow)

    async def swap(self, table: TableId, carry_over: CarryOver | None = None) -> str:
        from headwater.sinks.spark.rebuild import swap

        return await in_thread(partial(swap, self._lake, table, carry_over))

    @asynccontextmanager
    async def contents(
        self, schema: TableSchema, topics: Collection[str]
    ) -> AsyncIterator[TableContents]:
        from headwater.sinks.spark.table_reader import open_table

        head = await in_thread(self._state_log.head)
        ignores = self._settings.of(str(schema.table)).deletes == "ignore"
        opened = await in_thread(
            lambda: open_table(
                self._lake.table(schema.table), schema, passed=head.passed, ignores_deletes=ignores
            )
        )
        offsets = {part: at for part, at in opened.offsets.items() if part.topic in topics}
        batches = _in_threads(opened.batches)
        yield TableContents(offsets, opened.columns, batches, opened.deleted)

    async def maintain(self, tables: Collection[str] = ()) -> Sequence[str]:
        return await in_thread(partial(self._maintain, frozenset(tables)))

    async def versions(self, table: TableId, *, newest: int) -> Sequence[TableVersion]:
        from headwater.sinks.spark.table_reader import versions_of

        return await in_thread(lambda: versions_of(self._lake.table(table), newest=newest))

    async def close(self) -> None:
        """Closes the sink. Spark stays: it belongs to the process, and other sinks may use it."""

    def _read_offsets(self, topics: frozenset[str]) -> AppliedOffsets:
        head = self._state_log.head()
        found = {part: each.end for part, each in head.passed.items() if part.topic in topics}
        states: dict[TableId, LakeTableState | None] = {}
        for topic in topics & head.feeds.keys():
            table, id = head.feeds[topic]
            if table not in states:
                with failures_named(topic=topic, table=str(table)):
                    states[table] = self._lake.table(table).load()
            state = states[table]
            if state is None or state.id != id:
                found = {part: applied for part, applied in found.items() if part.topic != topic}
                continue
            for part, applied in state.offsets.items():
                if part.topic == topic:
                    found[part] = farthest(part, state.offsets, head.passed) or applied
        return found

    def _remaining(self, part: Slice) -> Slice:
        """Returns the slice without its finished parts."""
        done = {
            each
            for each, edges in self._done.items()
            if edges == (part.start.get(each), part.end.get(each))
        }
        return replace(part, start=_without(part.start, done), end=_without(part.end, done))

    def _check_idle(
        self, part: Slice, head: SinkState, table_works: Mapping[TableId, TableWork]
    ) -> None:
        """Checks whether somebody else has moved topics that have nothing in this slice."""
        busy = frozenset[str]().union(*(each.topics for each in table_works.values()))
        idle = {each.topic for each in part.start} - busy
        offsets = self._read_offsets(frozenset(idle))
        for each, applied in part.start.items():
            if each.topic in idle:
                check_offset(each, offsets.get(each), applied)

    def _announce(self, part: Slice, table_works: Mapping[TableId, TableWork]) -> SinkState:
        """Stores the table of every topic before the table is made, so that none is ever
        forgotten."""
        for _ in range(ATTEMPTS_MAX):
            head = self._state_log.head()
            feeds, anew, found = dict(head.feeds), set[str](), set[TopicPartition]()
            for table, table_work in table_works.items():
                with failures_named(table=str(table)):
                    state = self._lake.table(table).load()
                if state is None:
                    self._check_not_gone(table, table_work, head)
                    table_work.id = table_work.id or str(uuid4())
                else:
                    table_work.id = state.id
                    found |= _ahead(state, part, table_work.topics - head.feeds.keys())
                for topic in table_work.topics:
                    if topic in feeds and feeds[topic] != (table, table_work.id):
                        anew.add(topic)
                    feeds[topic] = (table, table_work.id)
            if feeds == head.feeds:
                return head
            passed = {part: each for part, each in head.passed.items() if part.topic not in anew}
            entry = replace(next_entry(head, writer=self._writer), feeds=feeds, passed=passed)
            if self._state_log.add(entry):
                if found:
                    raise SinkUnavailable(
                        "the sink's state beside the tables was lost and is restored from them: "
                        "the sink continues at its tables' offsets",
                        topics=sorted({each.topic for each in found}),
                    )
                return entry
        raise SinkUnavailable("other writers keep changing the sink's state", pipeline=self._writer)

    def _check_not_gone(self, table: TableId, table_work: TableWork, head: SinkState) -> None:
        for each, held in self._reported.items():
            is_fed = each.topic in table_work.topics and each.topic in head.feeds
            if is_fed and held.next_offset:
                raise SinkUnavailable(
                    "the table of this topic's rows is gone; it will be filled again",
                    table=str(table),
                    topic=each.topic,
                )

    async def _commit(
        self, part: Slice, head: SinkState, table_works: Mapping[TableId, TableWork]
    ) -> None:
        """Applies every table, even if others fail."""
        gate = asyncio.Semaphore(self._settings.tables_at_once)

        async def one(table: TableId, table_work: TableWork) -> None:
            async with gate:
                with failures_named(table=str(table)):
                    await move(table, table_work)

        async def move(table: TableId, table_work: TableWork) -> None:
            if table_work.failure is not None:
                raise table_work.failure
            table_slice = table_work.slice_of(part)
            table_writer = self._lake.table(table)
            await self._move(table_writer, part, table_work, table_slice, head.passed)
            self._tell_health(table_writer)
            for each, end in table_slice.end.items():
                self._done[each] = (table_slice.start[each], end)

        answers = await asyncio.gather(
            *(one(table, table_work) for table, table_work in table_works.items()),
            return_exceptions=True,
        )
        failures = [each for each in answers if isinstance(each, BaseException)]
        if failures:
            raise _worst(failures)

    async def _move(
        self,
        table_writer: LakeTableWriter,
        part: Slice,
        table_work: TableWork,
        table_slice: TableSlice,
        passed: Mapping[TopicPartition, PassedRange],
    ) -> None:
        """Commits one table; prepares it again if another commit came first."""
        for _ in range(ATTEMPTS_MAX):
            try:
                ready = await in_thread(
                    partial(
                        table_writer.prepare,
                        table_work.work,
                        table_slice,
                        passed=passed,
                        staged=table_work.staged,
                    )
                )
            except BadRecords as error:
                await self._name_bad_records(table_writer, part, table_work)
                raise SinkUnavailable("Spark has failed", table=str(table_writer.table)) from error
            if table_work.bounds is not None:
                after = await part.log.bounds(table_work.bounds)
                check_no_delete_was_missed(part.start, before=table_work.bounds, after=after)
            if await in_thread(partial(table_writer.commit, ready, table_slice, id=table_work.id)):
                part.heard(ready.prepared.counts)
                return
            if table_work.staged is not None:  # its changes are not in memory any more
                break
        raise SinkUnavailable(
            "other writers keep committing to the table", table=str(table_writer.table)
        )

    async def _name_bad_records(
        self, table_writer: LakeTableWriter, part: Slice, table_work: TableWork
    ) -> None:
        """Reads the records in this process, which raises the error that names them."""
        feeds = table_work.slice_of(part).feeds
        assert table_work.work is not None, "Spark has read them"
        schemas = table_work.work.schemas()
        layout, _ = await in_thread(
            lambda: table_writer.layout(schemas, table_writer.load(), feeds)
        )
        async for changes in of_topics(part, table_work.topics, are_wanted=True).changes():
            if not changes.is_truncate:
                await in_thread(partial(layout.conform, changes))

    def _settle(self, part: Slice, table_works: Mapping[TableId, TableWork]) -> None:
        """Stores offsets that moved without rows, and the versions of the tables that belong
        together."""
        for _ in range(ATTEMPTS_MAX):
            head = self._state_log.head()
            passed = dict(head.passed)
            for each, start in part.start.items():
                before = passed.pop(each, None)
                if each in self._done:
                    continue
                if head.writer != self._writer:
                    check_offset(each, self._read_offsets(frozenset({each.topic})).get(each), start)
                goes_on = before is not None and before.end == start
                since = before.since if before and goes_on else start.next_offset
                passed[each] = PassedRange(part.end[each], since)
            belong_together = self._settings.consistent_cut and part.is_whole
            versions = self._versions(head) if belong_together else {}
            left_out = {head.feeds[each][0] for each in part.left_out & head.feeds.keys()}
            entry = replace(
                next_entry(head, writer=self._writer),
                passed=passed,
                cut=part.cut,
                versions={each: at for each, at in versions.items() if each not in left_out},
                left_out=frozenset(left_out & versions.keys()),
            )
            if self._state_log.add(entry):
                return
        raise Fenced("another run has moved the target", pipeline=self._context.pipeline)

    def _versions(self, head: SinkState) -> dict[TableId, int]:
        states = {
            table_writer.table: table_writer.load() for table_writer in self._lake.tables(head)
        }
        return {table: state.version for table, state in states.items() if state is not None}

    def _examine(self) -> list[Diagnostic]:
        from headwater.sinks.spark.session import examine_java, examine_yarn

        looked_at = (examine_java(), examine_yarn(self._settings.master))
        found = [each for each in looked_at if each is not None]
        try:
            self._lake.place.store.check(writes=True)
        except HeadwaterError as error:
            found.append(
                Diagnostic(error.statement, error.hint or "see to it that it can be written")
            )
            return found
        for table_writer in self._find_known():
            cure = f"headwater rebuild {self._context.pipeline}/{table_writer.table} --swap"
            try:
                how = table_writer.waits_for_rebuild()
            except Exception as bug:
                failure = failure_of(bug)
                problem = f"table {table_writer.table}: {failure.statement}"
                found.append(Diagnostic(problem, failure.hint or cure, is_fatal=False))
                continue
            if how is not None:
                found.append(Diagnostic(self._waits(table_writer.table, how), cure, is_fatal=False))
        return found

    def _waits(self, table: TableId, how: str) -> str:
        return f"table {table} stays as it is until a rebuild: {how}"

    def _find_known(self) -> list[LakeTableWriter]:
        return self._lake.tables(self._state_log.head())

    async def _maintain_when_due(self) -> None:
        """Runs between slices, so that maintenance never competes with our own commits."""
        every_ms, now_ms = self._settings.maintenance.every_ms, self._context.clock.monotonic_ms()
        if self._maintained_ms is None:
            self._maintained_ms = now_ms
        elif every_ms and now_ms - self._maintained_ms >= every_ms:
            self._maintained_ms = now_ms
            try:
                done = await self.maintain()
            except MaintenanceFailed as error:
                done = error.done
                for table, why in error.failures.items():
                    logger.error("table %s is not maintained: %s", table, why)
            for line in done:
                logger.info("%s", line)

    def _maintain(self, tables: frozenset[str]) -> list[str]:
        from headwater.sinks.spark.maintenance import maintain

        now_ms, known = self._context.clock.now_ms(), self._find_known()
        chosen = [
            table_writer
            for table_writer in known
            if not tables or tables & {str(table_writer.table), table_writer.table.name}
        ]
        if tables and not chosen:
            raise ConfigError(
                "the lake does not have this table",
                table=", ".join(sorted(tables)),
                hint="there is "
                + (", ".join(str(table_writer.table) for table_writer in known) or "none"),
            )
        done, failures = list[str](), dict[str, str]()
        for table_writer in chosen:
            try:
                done += maintain(table_writer, self._settings, now_ms=now_ms)
            except Exception as bug:
                failures[str(table_writer.table)] = str(failure_of(bug))
        if failures:
            raise MaintenanceFailed(done, failures)
        return done

    def _tell_health(self, table_writer: LakeTableWriter) -> None:
        state, chosen = table_writer.newest, self._settings.of(str(table_writer.table))
        if state is not None:
            self._context.report(health_of(table_writer.table, state, file_rows=chosen.file_rows))

    def _drop_table(self, table: TableId, topics: frozenset[str]) -> list[str]:
        """Includes an unreadable table if the sink state says that it is ours."""
        from headwater.sinks.spark.rebuild import forget_copies

        table_writer, head, removed = self._lake.table(table), self._state_log.head(), list[str]()
        if _is_ours(table_writer, is_known=not topics.isdisjoint(head.feeds)):
            forget_copies(self._lake, table)
            table_writer.lake.drop()
            removed.append(f"table {table} under {table_writer.place.root}")
        for _ in range(ATTEMPTS_MAX):
            head = self._state_log.head()
            feeds = {topic: each for topic, each in head.feeds.items() if topic not in topics}
            passed = {part: each for part, each in head.passed.items() if part.topic not in topics}
            versions = {name: each for name, each in head.versions.items() if name != table}
            entry = next_entry(head, writer=self._writer)
            entry = replace(entry, feeds=feeds, passed=passed, versions=versions)
            if (feeds, passed) == (head.feeds, head.passed) or self._state_log.add(entry):
                return removed
        raise SinkUnavailable("other writers keep changing the sink's state", table=str(table))

    def _drop(self) -> list[str]:
        """Drops the tables that the sink state knows, unreadable ones included."""
        from headwater.sinks.spark.rebuild import forget_copies

        removed, failures = list[str](), list[HeadwaterError]()
        for table_writer in self._find_known():
            try:
                with failures_named(table=str(table_writer.table)):
                    if _is_ours(table_writer, is_known=True):
                        forget_copies(self._lake, table_writer.table)
                        table_writer.lake.drop()
                        removed.append(
                            f"table {table_writer.table} under {table_writer.place.root}"
                        )
            except HeadwaterError as error:
                failures.append(error)
        if failures:  # the sink state stays: the next attempt finds the tables by it
            raise failures[0]
        self._state_log.forget()
        self._lake.forget()
        self._reported, self._done = {}, {}
        return removed


def _is_ours(table_writer: LakeTableWriter, *, is_known: bool) -> bool:
    """Returns whether the table exists and may be removed; the sink state decides for an unreadable
    one."""
    try:
        return table_writer.load() is not None
    except SinkRejected as error:
        if not is_known or "owner" in error.facts:
            raise
        return True


def _planned_columns(table_writer: LakeTableWriter, schema: TableSchema) -> list[str]:
    """Yields each column with its lake type and its pending changes; raises as a slice would."""
    state = table_writer.load()
    wanted = table_writer.layout([schema], state, {})[0].columns
    held = {} if state is None else {each.name: each.type for each in state.schema}
    lines = []
    for field in wanted:
        remarks = ["key"] if field.name in schema.key else []
        if state is not None and field.name not in held:
            remarks.append("new")
        elif held.get(field.name, field.type) != field.type:
            remarks.append(f"now {spark_type(held[field.name])}")
        remark = f" ({', '.join(remarks)})" if remarks else ""
        lines.append(f"{field.name} {spark_type(field.type)}{remark}")
    own = tuple(name for name in held if name.startswith(OWN))
    gone = [name for name in held if name not in wanted.names and name not in own]
    return [*lines, *(f"{name} is dropped" for name in gone)]


def _ahead(state: LakeTableState, part: Slice, topics: Collection[str]) -> set[TopicPartition]:
    """Returns partitions whose offset in the table is not the slice's start."""
    return {
        each
        for each, applied in part.start.items()
        if each.topic in topics and state.offsets.get(each, applied) != applied
    }


def _without(offsets: AppliedOffsets, done: Iterable[TopicPartition]) -> AppliedOffsets:
    gone = set(done)
    return {each: applied for each, applied in offsets.items() if each not in gone}


def _worst(failures: Sequence[BaseException]) -> BaseException:
    """Returns the error that must be raised first: the end of this run, or an error that is no
    failure of ours. A table's permanent error goes before retryable ones."""
    unexpected = [each for each in failures if not isinstance(each, HeadwaterError)]
    fenced = [each for each in failures if isinstance(each, Fenced)]
    lasting = [each for each in failures if getattr(each, "cure", None) is not Cure.TIME]
    return [*unexpected, *fenced, *lasting, *failures][0]


async def _in_threads(batches: Iterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    while (batch := await in_thread(lambda: next(batches, None))) is not None:
        yield batch
