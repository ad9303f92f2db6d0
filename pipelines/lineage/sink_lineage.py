"""Tells a lineage server when a sink starts, ends and fails, and what it reads and writes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.errors import ConfigError, Fenced, HeadwaterError
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.lineage.column_lineage import table_lineage
from headwater.pipelines.lineage.datasets import sink_dataset, source_dataset
from headwater.pipelines.lineage.lineage_events import LineageSender, RunMoment, TableFlow
from headwater.pipelines.reports import Report, RowsMoved, StateChanged, TaskRun, TaskState
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.expressions import Expressions
from headwater.pipelines.transforms.routes import Routes

LOOK_S = 60.0
"""How often a running sink is asked for new tables and schemas."""
LAST_LOOK_S = 2.0
"""How long the end of a sink waits for the log to name them."""


class SinkLineages:
    """Sinks of one process. A run of a sink goes from its start to its end or its failure; tries
    that fail before it runs again are not told."""

    def __init__(self) -> None:
        self._failed: set[tuple[str, str]] = set()

    async def run(self, task: TaskRun, run_sink: Callable[[TaskRun], Awaitable[None]]) -> None:
        """Runs one life of a sink, and sends its events."""
        loaded = task.loaded
        name = (loaded.name, task.name)
        tables = SinkTables(loaded, _part_of(task))
        sender = LineageSender(loaded.spec.openlineage, loaded.redaction.scrub)
        life = SinkLife(task, tables, sender, has_failed=name in self._failed)
        try:
            await life.run(run_sink)
        finally:
            self._failed.discard(name)
            if life.has_failed:
                self._failed.add(name)
            await asyncio.to_thread(sender.close)


def _part_of(task: TaskRun) -> LoadedPart:
    return next(part for part in task.loaded.sinks if part.name == task.name)


@dataclass(slots=True)
class SinkLife:
    """One life of a sink, from its start until it is stopped or fails."""

    task: TaskRun
    tables: "SinkTables"
    sender: LineageSender
    has_failed: bool = False
    """Whether the last event of this sink was a failure."""
    run_id: str = ""
    """Empty before the sink has started."""
    is_told: bool = False
    """Whether its start has been sent."""
    flows: Sequence[TableFlow] = ()
    rows: dict[str, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, run_sink: Callable[[TaskRun], Awaitable[None]]) -> None:
        telling = asyncio.create_task(self._tell_while_running())
        state, error = "COMPLETE", ""
        try:
            await run_sink(replace(self.task, report=self._hear))
        except Fenced as fenced:
            state, error = "ABORT", str(fenced)
            raise
        except Exception as failure:
            state = "FAIL"
            error = str(failure) if isinstance(failure, HeadwaterError) else "internal error"
            raise
        finally:
            telling.cancel()
            try:
                await wait_for_end(telling)
            finally:
                await self._end(state, self.task.loaded.redaction.scrub(error))

    def _hear(self, report: Report) -> None:
        self.task.report(report)
        if isinstance(report, RowsMoved):
            self.rows[report.table] = self.rows.get(report.table, 0) + report.rows
            self._changed.set()
        elif isinstance(report, StateChanged) and not report.table:
            if report.state is TaskState.RUNNING and not self.run_id:
                self.start()
            self._changed.set()

    def start(self) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self.run_id, self.has_failed = str(generate_new_uuid()), False

    async def _tell_while_running(self) -> None:
        """`START` with the tables that the log has by then, and `RUNNING` when they change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self.run_id:
                continue
            before = self.flows
            with suppress(HeadwaterError):  # the sink itself tells of a log that is gone
                self.flows = await self._look()
            if not self.is_told or self.flows != before:
                self._put("RUNNING" if self.is_told else "START")
                self.is_told = True
            await asyncio.sleep(LOOK_S)

    async def _end(self, state: str, error: str) -> None:
        if not self.run_id:
            if state != "FAIL" or self.has_failed:
                return
            self.start()
        with suppress(HeadwaterError, TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                self.flows = await self._look()
        if not self.is_told:
            self._put("START")
        self.has_failed = state == "FAIL"
        self._put(state, error)

    async def _look(self) -> Sequence[TableFlow]:
        return await self.tables.flows(self.task.log)

    def _put(self, state: str, error: str = "") -> None:
        loaded = self.task.loaded
        self.sender.put(
            RunMoment(
                state,
                self.run_id,
                f"{loaded.name}.{self.task.name}",
                self.task.clock.now_ms(),
                self.flows,
                is_stream=not self.task.until_end,
                rows={} if state in ("START", "RUNNING") else dict(self.rows),
                error=error,
            )
        )


class SinkTables:
    """The tables of one sink, at the source and in the target."""

    def __init__(self, loaded: LoadedPipeline, part: LoadedPart) -> None:
        self._loaded, self._part = loaded, part
        spec = loaded.spec
        self._after_log = RowTransforms(spec.transform, spec.route, directory=loaded.directory)
        self._routes = Routes(spec.route)

    async def flows(self, log: Log) -> Sequence[TableFlow]:
        """Tables whose rules cannot be applied are left out; the sink holds them."""
        stored = await topics_of(log, self._loaded.name)
        found = []
        for topic, each in sorted(stored.items()):
            with suppress(ConfigError):
                found.append(self._flow(topic, each.schema))
        return found

    def _flow(self, topic: str, schema: TableSchema) -> TableFlow:
        target = self._after_log.schema(schema)
        return TableFlow(
            source_dataset(self._loaded, schema.table, topic),
            schema,
            sink_dataset(self._loaded, self._part, target.table),
            target,
            table_lineage(
                schema,
                target,
                self._loaded.spec.transform,
                self._used_columns,
                constants=self._routes.target(schema.table).key,
            ),
        )

    def _used_columns(self, text: str, known: Collection[str]) -> Collection[str]:
        names = {name.lower() for name in self._expressions.check(text).names}
        return [name for name in known if name.lower() in names]

    @cached_property
    def _expressions(self) -> Expressions:
        return Expressions()
