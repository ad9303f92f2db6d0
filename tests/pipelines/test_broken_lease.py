"""Two runs that both believe to own the source and the sinks lose nothing and apply nothing twice:
a writer is fenced, and a sink applies on a condition."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.running.processes import WorkerProcesses
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import RetryPolicy, TaskEnvironment, TaskId
from headwater.pipelines.running.tasks import TaskRunner
from tests.pipelines.known_history import PIPELINE, audit, changes_in, is_whole

SINKS = frozenset(TaskId("shop", name) for name in ("mirror", "changes"))
TASKS = SINKS | {TaskId("shop", "source")}
SOON = RetryPolicy(backoff_ms=300, backoff_ms_max=60_000)
"""Two runs that fence each other before either gets far wait longer and longer: on a busy machine
one of them has time enough in the end."""


class Believer:
    """A run whose lease is never over, whatever the others do."""

    def __init__(self, loaded: LoadedPipeline, tasks: asyncio.TaskGroup) -> None:
        self.loaded, self.fenced, self.running = loaded, Counter[str](), set[str]()
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
        elif isinstance(report, StateChanged) and report.state is TaskState.RUNNING:
            self.running.add(report.task)

    @asynccontextmanager
    async def _open_log(self, loaded: LoadedPipeline) -> AsyncIterator[KafkaLog]:
        log = KafkaLog(KafkaSettings(bootstrap=list(loaded.spec.log.bootstrap)))
        try:
            yield log
        finally:
            await log.close()

    async def start_sinks(self) -> None:
        """Returns when each sink knows where it continues, before there is any change."""
        self.pipelines.share()
        await self.pipelines.apply([self.loaded])
        await self.pipelines.take(SINKS)
        while not {task.name for task in SINKS} <= self.running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_two_runs_with_the_same_tasks_lose_nothing_and_apply_nothing_twice(
    tmp_path: Path,
) -> None:
    log = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path / "log", listen="127.0.0.1:0", auto_create_topics=False)
    )
    file = tmp_path / "pipeline.yaml"
    place = f'{{type: kafka, bootstrap: "{log.endpoint}", path: data, cleanup: delete}}'
    file.write_text(PIPELINE.format(at=tmp_path, log=place, rate=2_000) + "workers: 0\n")
    (loaded,) = load(file, environment={})

    async with asyncio.TaskGroup() as tasks:
        both = [Believer(loaded, tasks) for _ in range(2)]
        await asyncio.gather(*(each.start_sinks() for each in both))
        await asyncio.gather(*(each.pipelines.take(TASKS) for each in both))
        while not (is_whole(tmp_path) and _all_were_fenced(both)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.gather(*(each.pipelines.close() for each in both))
    names = [each.name for each in await log.topics.all()]
    changes = await changes_in(log, names)
    await log.close()

    audit(tmp_path, changes)


def _all_were_fenced(both: list[Believer]) -> bool:
    """Whether each task has met its twin: one of the two sinks must, for both began at the same
    offset."""
    return {task.name for task in TASKS} <= both[0].fenced.keys() | both[1].fenced.keys()
