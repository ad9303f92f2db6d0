"""One life of a task of a pipeline, as a test wants it."""

from collections.abc import Callable

from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.model.log import Log
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.reports import Report, TaskRun


def task_run(
    loaded: LoadedPipeline,
    name: str,
    log: Log,
    *,
    desired: Callable[[], DesiredTaskState] | None = None,
    clock: Clock | None = None,
    report: Callable[[Report], None] = lambda _: None,
    until_end: bool = True,
) -> TaskRun:
    """By default nobody has asked for anything, and the task ends with what there is."""
    return TaskRun(
        loaded,
        name,
        log,
        desired=desired or (lambda: DesiredTaskState(loaded.name)),
        clock=clock or SystemClock(),
        report=report,
        until_end=until_end,
    )
