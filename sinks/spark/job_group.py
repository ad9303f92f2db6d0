"""Spark jobs of one piece of work, so that a stop cancels them instead of waiting for them."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from headwater.core_log.client.gather import wait_for_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS = "headwater.progress"
"""The logger of progress of long work; commands show it even if they are quiet."""

CANCEL_AGAIN_S, PROGRESS_S = 0.2, 10.0

Result = TypeVar("Result")

progress = logging.getLogger(PROGRESS)

_current = threading.local()


class JobGroup:
    """Spark jobs that a thread starts for one piece of work. Its next job is cancelled too."""

    def __init__(self) -> None:
        self._name = f"headwater-{uuid4().hex}"
        self._session: SparkSession | None = None
        self._is_cancelled = False

    def run(self, work: Callable[[], Result]) -> Result:
        """Runs the work in the calling thread."""
        _current.group = self
        try:
            return work()
        finally:
            _current.group = None

    def join(self, session: "SparkSession") -> None:
        """Makes further jobs of this thread part of this group."""
        self._session = session
        session.sparkContext.setJobGroup(self._name, "headwater", interruptOnCancel=True)
        if self._is_cancelled:
            raise JobsCancelled

    def describe_progress(self) -> str:
        """Returns the progress of the stages that run now; empty if none runs."""
        if self._session is None:
            return ""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        tracker = self._session.sparkContext.statusTracker()
        done = total = 0
        with suppress(Py4JError, OSError):
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name))
            for stage in {id for job in jobs if job is not None for id in job.stageIds}:
                if (found := tracker.getStageInfo(stage)) is not None and found.numActiveTasks:
                    done, total = done + found.numCompletedTasks, total + found.numTasks
        return f"Spark has done {done:,} of {total:,} tasks" if total else ""

    def cancel(self) -> None:
        """Cancels running jobs. Call it until the work has ended: a job that starts later is
        missed."""
        self._is_cancelled = True
        if self._session is None:
            return
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # Spark may be stopping, too
            self._session.sparkContext.cancelJobGroup(self._name)


class JobsCancelled(Exception):
    """The work was cancelled before its first Spark job."""


def join_current(session: "SparkSession") -> "SparkSession":
    """Adds jobs of this thread to the group of the work that opens a session."""
    group = getattr(_current, "group", None)
    if group is not None:
        group.join(session)
    return session


async def in_thread(work: Callable[[], Result]) -> Result:
    """Waits for the thread even when cancelled, so that no write goes on behind our back; what it
    has Spark do is cancelled, and done again by the next start."""
    loop, group = asyncio.get_running_loop(), JobGroup()
    began_s = loop.time()
    running = loop.run_in_executor(None, partial(group.run, work))
    try:
        while not (await asyncio.wait([running], timeout=PROGRESS_S))[0]:
            if message := await loop.run_in_executor(None, group.describe_progress):
                progress.info("%s, after %.0f s", message, loop.time() - began_s)
        return running.result()
    except asyncio.CancelledError:

        async def cancel() -> None:
            while not running.done():
                await loop.run_in_executor(None, group.cancel)
                await asyncio.wait([running], timeout=CANCEL_AGAIN_S)

        try:
            await wait_for_end(asyncio.ensure_future(cancel()))
        finally:
            running.exception()  # nobody is left to be told of it
        raise
