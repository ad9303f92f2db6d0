"""A missing Java is reported first, a dead Spark is replaced, and a stop ends only our own jobs."""

import asyncio
import os
import subprocess
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from headwater.core_log.foundation.errors import ConfigError
from headwater.sinks.spark import session
from headwater.sinks.spark.session import (
    SessionChoices,
    examine_java,
    examine_yarn,
    in_thread,
    open_session,
)
from tests.sinks.spark.targets import LakeBench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put_java(place: Path, said: str) -> None:
    """Java tells its version on the error output."""
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
        ('openjdk version "11.0.20" 2023-07-18', "Spark needs Java 17 or newer, and this is 11"),
        ('java version "1.8.0_392"', "Spark needs Java 17 or newer, and this is 1"),
        ("no idea", "does not say which version of Java it is"),
    ],
)
def test_an_old_java_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, problem: str | None
) -> None:
    put_java(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    finding = examine_java()

    assert (finding is None) == (problem is None)
    assert finding is None or (problem or "") in finding.problem


def test_yarn_without_the_settings_of_hadoop_is_found_out_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    nothing_open = session._Held()
    monkeypatch.setattr(session, "_find_held", lambda: nothing_open)

    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR"):
        open_session(SessionChoices(master="yarn", scratch=tmp_path))
    local, told = examine_yarn("local[*]"), examine_yarn("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))

    assert local is None and told is not None and "yarn-site.xml" in told.hint
    assert examine_yarn("yarn") is None


@pytest.mark.parametrize(("has_java", "count"), [(False, 1), (True, 0)])
async def test_a_lake_that_is_met_without_java_says_so_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_java: bool,
    count: int,
) -> None:
    if has_java:
        put_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    session.warn_without_java.cache_clear()

    for _ in range(2):
        await LakeBench(str(tmp_path / "lake")).sink().committed_offsets(["shop.public.orders"])

    said = [each for each in caplog.messages if "needs Java, which is not installed" in each]
    assert len(said) == count
    session.warn_without_java.cache_clear()


def test_a_session_without_java_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    nothing_open = session._Held()
    monkeypatch.setattr(session, "_find_held", lambda: nothing_open)

    with pytest.raises(ConfigError) as caught:
        open_session(SessionChoices(master="local[1]", scratch=tmp_path))

    assert "not installed" in str(caught.value) and "JAVA_HOME" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_counts_as_dead_only_later_is_forgotten_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed, and answered no more before its end was known: the session was given up."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    nothing_open = session._Held()
    monkeypatch.setattr(session, "_find_held", lambda: nothing_open)
    process = subprocess.Popen(["true"])
    process.wait()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(SparkContext, "_jvm", None)  # another test's Spark may run in here

    with pytest.raises(ConfigError):
        open_session(SessionChoices(master="local[1]", scratch=tmp_path))

    assert SparkContext._gateway is None


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
    monkeypatch.setattr(session, "PROGRESS_S", 0.01)
    monkeypatch.setattr(session.progress, "info", lambda *words: said.put_nowait(words[1]))
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
