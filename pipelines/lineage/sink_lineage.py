"""Tells a lineage server when a sink starts, ends and fails, and what it reads and writes."""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.errors import ConfigError, Fenced, HeadwaterError
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.schema_text import type_text
from headwater.pipelines.file.http_settings import OpenLineageSettings
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.lineage.column_lineage import ColumnOrigin, TableLineage, table_lineage
from headwater.pipelines.lineage.datasets import DatasetName, sink_dataset, source_dataset
from headwater.pipelines.reports import Report, RowsMoved, StateChanged, TaskRun, TaskState
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.expressions import Expressions
from headwater.pipelines.transforms.routes import Routes

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2 import DatasetFacet
    from openlineage.client.generated.column_lineage_dataset import InputField

logger = logging.getLogger(__name__)

LOOK_S = 60.0
"""How often a running sink is asked for new tables and schemas."""
LAST_LOOK_S = 2.0
"""How long the end of a sink waits for the log to name them."""
WAITING_MAX = 1_000
REQUEST_S, FINISH_S = 5.0, 5.0
RETRIES = {"total": 2}
"""Fewer than the client's own default, so that a run's end need not wait for a server that is
gone."""


@dataclass(frozen=True, slots=True)
class TableFlow:
    """One table on its way from the source to the target."""

    source: DatasetName
    source_schema: TableSchema
    """As it is in the log: without dropped columns."""
    target: DatasetName
    target_schema: TableSchema
    lineage: TableLineage


@dataclass(frozen=True, slots=True)
class RunMoment:
    """The content of one event about a run."""

    state: str
    """`START`, `RUNNING`, `COMPLETE`, `FAIL` or `ABORT`."""
    run_id: str
    job: str
    at_ms: int
    flows: Sequence[TableFlow]
    is_stream: bool
    rows: Mapping[str, int]
    """Rows that the run has written, by source table; only at its end."""
    error: str = ""


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
    sender: "LineageSender"
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


class LineageSender:
    """Sends events in their order from a thread, so that no slice waits for the server."""

    def __init__(self, settings: OpenLineageSettings, scrub: Callable[[str], str]) -> None:
        try:
            from openlineage.client import OpenLineageClient
            from openlineage.client.transport.http import (
                HttpConfig,
                HttpTransport,
                create_token_provider,
            )
            from openlineage.client.transport.http_common import DEFAULT_RETRY_CONFIG
        except ImportError as error:
            raise ConfigError(
                "openlineage needs packages that are not installed",
                hint="pip install 'headwater[openlineage]'",
                missing=error.name,
            ) from None
        key = settings.api_key.get_secret_value()
        auth = create_token_provider({"type": "api_key", "apiKey": key} if key else {})
        address = settings.url.rstrip("/") + "/"
        config = HttpConfig(
            url=address, timeout=REQUEST_S, auth=auth, retry=DEFAULT_RETRY_CONFIG | RETRIES
        )
        self._client = OpenLineageClient(transport=HttpTransport(config))
        self._namespace, self._scrub = settings.namespace, scrub
        self._waiting: queue.Queue[RunMoment | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._send, name="openlineage", daemon=True)
        self._thread.start()

    def put(self, moment: RunMoment) -> None:
        try:
            self._waiting.put_nowait(moment)
        except queue.Full:
            logger.warning("the lineage server is too slow: an event is left out")

    def close(self) -> None:
        """Blocks until everything is sent, for at most a few seconds."""
        self._waiting.put(None)
        self._thread.join(FINISH_S)

    def _send(self) -> None:
        is_failing = False
        while (moment := self._waiting.get()) is not None:
            try:
                self._client.emit(run_event(moment, self._namespace, self._scrub))
                is_failing = False
            except Exception as error:  # lineage never stops rows
                if not is_failing:
                    logger.warning("the lineage server has failed: %s", self._scrub(str(error)))
                is_failing = True
        self._client.close()


def run_event(moment: RunMoment, namespace: str, scrub: Callable[[str], str]) -> "RunEvent":
    """`scrub` takes secrets out of the rules that columns come by."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job

    producer = f"urn:headwater:{version('headwater')}"
    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if moment.is_stream else "BATCH",
        integration="HEADWATER",
        jobType="TASK",
        producer=producer,
    )
    failure = error_message_run.ErrorMessageRunFacet(
        message=moment.error, programmingLanguage="PYTHON", producer=producer
    )
    at = datetime.fromtimestamp(moment.at_ms / 1_000, UTC)
    return RunEvent(
        eventTime=at.isoformat(timespec="milliseconds"),
        producer=producer,
        eventType=RunState[moment.state],
        run=Run(moment.run_id, {"errorMessage": failure} if moment.error else {}),
        job=Job(namespace, moment.job, {"jobType": kind}),
        inputs=[_input(each, producer) for each in moment.flows],
        outputs=[_output(each, moment, producer, scrub) for each in moment.flows],
    )


def _input(flow: TableFlow, producer: str) -> "InputDataset":
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*flow.source, facets={"schema": _schema(flow.source_schema, producer)})


def _output(
    flow: TableFlow, moment: RunMoment, producer: str, scrub: Callable[[str], str]
) -> "OutputDataset":
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        output_statistics_output_dataset,
    )

    fields = {
        name: column_lineage_dataset.Fields(
            [_field(each, flow.source, "DIRECT", scrub) for each in found]
        )
        for name, found in flow.lineage.columns.items()
    }
    columns = column_lineage_dataset.ColumnLineageDatasetFacet(
        fields=fields,
        dataset=[_field(each, flow.source, "INDIRECT", scrub) for each in flow.lineage.filters],
        producer=producer,
    )
    rows = moment.rows.get(str(flow.source_schema.table))
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=rows, producer=producer
    )
    return OutputDataset(
        *flow.target,
        facets={"schema": _schema(flow.target_schema, producer), "columnLineage": columns},
        outputFacets={} if rows is None else {"outputStatistics": statistics},
    )


def _schema(schema: TableSchema, producer: str) -> "DatasetFacet":
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(
            column.name, type_text(column.type), ordinal_position=place
        )
        for place, column in enumerate(schema.columns, 1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields, producer=producer)


def _field(
    origin: ColumnOrigin, source: DatasetName, kind: str, scrub: Callable[[str], str]
) -> "InputField":
    from openlineage.client.facet_v2 import column_lineage_dataset

    how = column_lineage_dataset.Transformation(
        kind, origin.kind, scrub(origin.description), origin.is_masked
    )
    return column_lineage_dataset.InputField(*source, origin.column, [how])
