"""Spark's jobs of one piece of work, so that a stop ends them instead of waiting for them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS = "headwater.progress"
"""Where it is logged how far long work is: commands pass it on though they say little else."""

Result = TypeVar("Result")

_current = threading.local()


class JobGroup:
    """What a thread has Spark do while it does this work. Its next job is cancelled as well."""

    def __init__(self) -> None:
        self._name = f"headwater-{uuid4().hex}"
        self._session: SparkSession | None = None
        self._is_cancelled = False

    def run(self, work: Callable[[], Result]) -> Result:
        """In the thread that calls this, and nowhere else."""
        _current.group = self
        try:
            return work()
        finally:
            _current.group = None

    def join(self, session: "SparkSession") -> None:
        """From now on jobs of this thread are of this group."""
        self._session = session
        session.sparkContext.setJobGroup(self._name, "headwater", interruptOnCancel=True)
        if self._is_cancelled:
            raise JobsCancelled

    def describe_progress(self) -> str:
        """How far Spark's stages of it are that run just now; empty while none does."""
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
        """Call it until the work has ended: a job that begins a moment later is not met."""
        self._is_cancelled = True
        if self._session is None:
            return
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # Spark may be ending, too
            self._session.sparkContext.cancelJobGroup(self._name)


class JobsCancelled(Exception):
    """The work was told to stop before it had begun with Spark."""


def join_current(session: "SparkSession") -> "SparkSession":
    """For whoever opens a session: jobs of this thread belong to the work that it does."""
    group = getattr(_current, "group", None)
    if group is not None:
        group.join(session)
    return session
