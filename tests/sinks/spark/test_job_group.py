"""A stop ends what Spark does for a sink, and nothing that it does for others."""

import asyncio
import os
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from headwater.sinks.spark import job_group
from headwater.sinks.spark.job_group import in_thread
from tests.sinks.spark.targets import LakeBench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wait_in_task(started: str, _: object) -> list[int]:
    """Says that it runs, and does not end by itself."""
    with Path(started).open("w") as fifo:
        fifo.write("x")
    Event().wait()
    return []


def endless(session: "SparkSession", started: Path) -> None:
    context = session.sparkContext
    context.parallelize([1], 1).mapPartitions(partial(wait_in_task, str(started))).collect()


@pytest.mark.slow
async def test_work_that_is_cancelled_ends_with_its_jobs_and_the_next_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = asyncio.Queue[str]()
    monkeypatch.setattr(job_group, "PROGRESS_S", 0.01)
    monkeypatch.setattr(job_group.progress, "info", lambda *words: said.put_nowait(words[1]))
    split = LakeBench(str(tmp_path)).sink()._work_split
    started = tmp_path / "started"
    os.mkfifo(started)
    running = asyncio.ensure_future(in_thread(lambda: endless(split._session(), started)))
    assert await asyncio.to_thread(started.read_text) == "x"

    progress = await said.get()
    running.cancel()
    await asyncio.wait([running])

    assert progress == "Spark has done 0 of 1 tasks"
    assert running.cancelled()
    count = await in_thread(lambda: split._session().range(10).count())
    assert count == 10
