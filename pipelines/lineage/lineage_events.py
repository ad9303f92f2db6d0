"""Events of OpenLineage: what a run of a sink reads and writes, with schemas and columns."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.schema_text import type_text
from headwater.pipelines.file.http_settings import OpenLineageSettings
from headwater.pipelines.lineage.column_lineage import ColumnOrigin, TableLineage
from headwater.pipelines.lineage.datasets import DatasetName

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent
    from openlineage.client.facet_v2 import DatasetFacet
    from openlineage.client.generated.column_lineage_dataset import InputField

logger = logging.getLogger(__name__)

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
                "openlineage: needs packages that are not installed",
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
                    logger.warning("the lineage server takes nothing: %s", self._scrub(str(error)))
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
