"""Two runs that both believe to own the source and the sinks lose nothing and apply nothing twice:
a writer is fenced, and a sink applies on a condition."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import orjson
import pytest

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.internal_topics import INTERNAL
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.backoff import RetryPolicy
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.running.processes import WorkerProcesses
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import TaskEnvironment, TaskId
from headwater.pipelines.running.tasks import TaskRunner

PIPELINE = """
pipeline: shop
source: {{type: generator, size: 1000, total: 6000, rate: 0, batch_rows: 60, batch_wait: 0s}}
sink:
  - {{type: sql, name: mirror, url: "sqlite:///{at}/mirror.db", commit_every: 0s}}
  - type: sql
    name: changes
    url: "sqlite:///{at}/changes.db"
    tables: {{"*": {{mode: append}}}}
    commit_every: 0s
log: {{type: kafka, bootstrap: "{address}", path: "{at}/data", cleanup: delete}}
workers: 0
"""
TASKS = frozenset(TaskId("shop", name) for name in ("source", "mirror", "changes"))
SETTINGS = GeneratorSettings(size=1_000, total=6_000, rate=0, batch_rows=60)
SOON = RetryPolicy(backoff_ms=100, backoff_ms_max=300)


class Believer:
    """A run whose lease is never over, whatever the others do."""

    def __init__(self, loaded: LoadedPipeline, tasks: asyncio.TaskGroup) -> None:
        self.loaded, self.fenced = loaded, Counter[str]()
        self.pipelines = RunningPipelines(tasks, self._hear, fenced=SOON)
        around = TaskEnvironment(SystemClock(), Random(7))
        listeners = self.pipelines.listeners()
        self.pipelines.run_in(
            processes=WorkerProcesses(tasks, listeners, around),
            runner=TaskRunner(tasks, checked_first(), self._open_log, listeners, around),
            bootstrap=tuple(loaded.spec.log.bootstrap),
        )

    def _hear(self, report: Report) -> None:
        if isinstance(report, StateChanged) and report.state is TaskState.RETRYING:
            self.fenced[report.task] += 1

    @asynccontextmanager
    async def _open_log(self, loaded: LoadedPipeline) -> AsyncIterator[KafkaLog]:
        log = KafkaLog(KafkaSettings(bootstrap=list(loaded.spec.log.bootstrap)))
        try:
            yield log
        finally:
            await log.close()

    async def believe(self) -> None:
        self.pipelines.share()
        await self.pipelines.apply([self.loaded])
        await self.pipelines.take(TASKS)


@pytest.mark.slow
async def test_two_runs_with_the_same_tasks_lose_nothing_and_apply_nothing_twice(
    tmp_path: Path,
) -> None:
    log = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path / "log", listen="127.0.0.1:0", auto_create_topics=False)
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(at=tmp_path, address=log.endpoint))
    (loaded,) = load(file, environment={})

    async with asyncio.TaskGroup() as tasks:
        both = [Believer(loaded, tasks) for _ in range(2)]
        await asyncio.gather(*(each.believe() for each in both))
        async with asyncio.timeout(300):
            while not is_whole(tmp_path):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await asyncio.gather(*(each.pipelines.close() for each in both))
    changes = await changes_in(log)
    await log.close()

    fenced = both[0].fenced + both[1].fenced
    assert fenced["source"] and fenced["mirror"] and fenced["changes"], fenced
    assert max(changes.values()) == 1, "a change is in the log once"
    assert changes.total() >= 6_000
    with closing(sqlite3.connect(tmp_path / "changes.db")) as target:
        counts = [
            target.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0]
            for table in truth(SETTINGS)
        ]
    assert sum(counts) == changes.total()
    with closing(sqlite3.connect(tmp_path / "mirror.db")) as target:
        for table, rows in truth(SETTINGS).items():
            names = ", ".join(f'"{name}"' for name in rows.column_names[:2])
            found = target.execute(f'SELECT {names} FROM "{table.name}" ORDER BY {names}')
            wanted = zip(*(rows.column(at).to_pylist() for at in range(2)), strict=True)
            assert found.fetchall() == sorted(wanted), table


def is_whole(directory: Path) -> bool:
    """Whether as many changes as there are have come to both ends."""
    try:
        with closing(sqlite3.connect(directory / "changes.db", timeout=10)) as target:
            names = [table.name for table in truth(SETTINGS)]
            counts = [
                target.execute(f'SELECT count(*) FROM "{each}"').fetchone()[0] for each in names
            ]
        with closing(sqlite3.connect(directory / "mirror.db", timeout=10)) as target:
            rows = [
                target.execute(f'SELECT count(*) FROM "{each}"').fetchone()[0] for each in names
            ]
    except sqlite3.OperationalError:
        return False
    wanted = [rows.num_rows for rows in truth(SETTINGS).values()]
    return sum(counts) >= 6_000 and rows == wanted


def without_times(value: bytes) -> bytes:
    """Two copies of one change would differ in when they were written."""
    event = orjson.loads(value)
    return orjson.dumps({key: event[key] for key in ("before", "after", "op", "source")})


async def changes_in(log: EmbeddedLog) -> Counter[bytes]:
    """How often each record of a table is in the log."""
    found = Counter[bytes]()
    names = [each.name for each in await log.topics.all() if each.name not in INTERNAL]
    for name in names:
        if name.startswith("__") or name.endswith(".dlq"):
            continue
        partition = TopicPartition(name, 0)
        bounds = (await log.bounds([partition]))[partition]
        offset = bounds.start
        while offset < bounds.end:
            for part in await log.fetch(
                {partition: offset}, limit=FetchLimit(), isolation=Isolation.COMMITTED
            ):
                columns = arrow_codec.decode(part.data, from_offset=offset, partition=partition)
                found.update(name.encode() + value for value in columns.values.to_pylist() if value)
                offset = part.next_offset
    return found
