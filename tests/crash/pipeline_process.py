"""A whole pipeline in a process of its own, which dies at a named point."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline, load
from headwater.pipelines.loops.assembly import run_task
from tests.crash.lake_points import watch_lake
from tests.crash.pipeline_points import (
    Fuse,
    KillingFiles,
    KillingLog,
    KillingSink,
    KillingSource,
    Point,
    watch_sql,
)
from tests.pipelines.task_runs import task_run

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [__name__, "sqlalchemy", "duckdb", "headwater.core_log.rows.codec"]
)
"""Imports once; a process that is about to be killed then starts in no time."""

PATIENCE_S = 600


def run_pipeline(path: Path, point: Point | None, *, before: Callable[[], object] = int) -> int:
    """The exit code: 0 when source and sinks came to their end, -9 when the point was reached.
    `before` is called in that process first."""
    process = PROCESSES.Process(target=_live, args=(path, point, before))
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the pipeline neither ended nor died at {point}")
    assert process.exitcode is not None, "a joined process has an exit code"
    return process.exitcode


def _live(path: Path, point: Point | None, before: Callable[[], object]) -> None:
    before()
    asyncio.run(live(path, point))


async def live(path: Path, point: Point | None) -> dict[str, int]:
    """Source and sinks side by side until the source has ended; then the sinks to the end.
    Returns how often each seam was called."""
    fuse = Fuse(point)
    watch_sql(fuse)
    watch_lake(fuse)
    [loaded] = load(path, environment=os.environ)
    settings = BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1)
    files: Any = KillingFiles(OsFiles(), fuse)
    log = EmbeddedLog(await RunningBroker.start(settings, files=files))
    killing, pipeline = KillingLog(log, fuse), fused(loaded, fuse)

    async def run(task: str, *, until_end: bool) -> None:
        await run_task(task_run(pipeline, task, killing, until_end=until_end))

    try:
        sinks = [asyncio.ensure_future(run(part.name, until_end=False)) for part in loaded.sinks]
        await run("source", until_end=True)
        for task in sinks:
            task.cancel()
        await asyncio.gather(*sinks, return_exceptions=True)
        for part in loaded.sinks:
            await run(part.name, until_end=True)
    finally:
        await log.close()
    return fuse.counts


def fused(loaded: LoadedPipeline, fuse: Fuse) -> LoadedPipeline:
    """The same pipeline with a fuse at its source and its sinks."""

    def source(settings: Any, context: Any) -> KillingSource:
        return KillingSource(loaded.source.component(settings, context), fuse)

    def sink(part: LoadedPart) -> Any:
        return lambda settings, context: KillingSink(part.component(settings, context), fuse)

    made: Any = source
    return replace(
        loaded,
        source=replace(loaded.source, component=made),
        sinks=tuple(replace(part, component=sink(part)) for part in loaded.sinks),
    )
