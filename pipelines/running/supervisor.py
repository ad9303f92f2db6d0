"""Runs one task of a pipeline for as long as time may cure what stops it."""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.disk_space import disk_full, lacks_room
from headwater.core_log.foundation.errors import (
    Cure,
    Fenced,
    HeadwaterError,
    LogUnavailable,
    SinkUnavailable,
    SourceUnavailable,
    leaves_of,
    place_of,
)
from headwater.pipelines.loops.deliver.quarantine import (
    error_text,
    is_cured_outside,
    pause_ms,
    reason_of,
)
from headwater.pipelines.reports import Report, Reporter, RowsMoved, StateChanged, TaskState

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

logger = logging.getLogger(__name__)

CONNECTIONS = (SourceUnavailable, SinkUnavailable, LogUnavailable)
"""Tried again for ever, slowly: who cannot be reached says nothing about what is wrong with us."""

CRASHES_MAX = 3
CRASH_WINDOW_MS = 600_000

Sleep = Callable[[float], Awaitable[None]]
Redact = Callable[[str], str]
"""Takes the secrets of a pipeline out of a text."""
TaskAttempt = Callable[[Reporter], Awaitable[None]]
"""One attempt of a task, told where to report."""


class TaskId(NamedTuple):
    """`source`, or a sink's name, of one pipeline."""

    pipeline: str
    name: str

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.name}"


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """How a task has ended, for good or until a person helps."""

    task: TaskId
    state: TaskState
    reason: str = ""
    kind: str = ""
    """Name of the error's class, where an error ended it."""
    retry_ms: int | None = None
    """When a quarantined task is tried again without a command; None where that is of no use."""
    has_moved: bool = False
    """Whether anything went through it before it ended."""


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    clock: Clock
    random: Random
    sleep: Sleep = asyncio.sleep
    redact: Redact = str
    keep_unsaid: "Callable[[LoadedPipeline], None]" = lambda _: None
    """Told of a pipeline whose secrets have changed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The values of `errors.retry` of a pipeline."""

    for_ms: int = 600_000
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000


async def supervise(
    task: TaskId,
    work: TaskAttempt,
    patience: RetryPolicy,
    report: Reporter,
    around: TaskEnvironment,
    *,
    tries: int | None = None,
) -> TaskEnded:
    """Returns when the task is done, fenced or given up; being cancelled is the only other end.
    `tries`: how often it was given up and tried again; None where it is not tried again."""
    return await _Supervision(task, work, patience, report, around, tries).run()


class _Supervision:
    def __init__(
        self,
        task: TaskId,
        work: TaskAttempt,
        patience: RetryPolicy,
        report: Reporter,
        around: TaskEnvironment,
        tries: int | None,
    ) -> None:
        self._task, self._work, self._report, self._around = task, work, report, around
        self._tries, self._has_ever_moved = tries, False
        self._incident = Incident(Backoff(patience, around.random))
        self._crash_backoff, self._crashes = Backoff(patience, around.random), Crashes()
        self._has_moved = False

    async def run(self) -> TaskEnded:
        self._report_state(TaskState.STARTING)
        try:
            while True:
                ended = await self._attempt()
                if ended is not None:
                    self._report_state(ended.state, ended.reason)
                    return ended
        except asyncio.CancelledError:
            self._report_state(TaskState.STOPPED)
            raise

    async def _attempt(self) -> TaskEnded | None:
        """One life of the task; None when there is to be another."""
        clock = self._around.clock
        self._has_moved, started_ms = False, clock.monotonic_ms()
        try:
            await self._work(self._pass_on)
        except Exception as failure:
            self._incident.on_ran(
                for_ms=clock.monotonic_ms() - started_ms, has_moved=self._has_moved
            )
            error = expected_error(failure)
            if isinstance(error, Fenced):
                logger.info("%s ends: %s", self._task, error)
                return TaskEnded(self._task, TaskState.STOPPED, error.problem, "Fenced")
            if error is None:
                return await self._after_crash(failure)
            return await self._after_error(error)
        return TaskEnded(self._task, TaskState.DONE)

    async def _after_error(self, error: HeadwaterError) -> TaskEnded | None:
        reason = self._around.redact(error_text(error, self._task.pipeline))
        delay_ms = None
        if error.cure is Cure.TIME:
            delay_ms = self._incident.next_delay_ms(
                self._around.clock.monotonic_ms(), is_connection=isinstance(error, CONNECTIONS)
            )
        if delay_ms is None:
            return self._give_up(error, reason)
        logger.warning("%s tries again in %.1f s: %s", self._task, delay_ms / 1_000, reason)
        await self._pause(delay_ms, reason)
        return None

    def _give_up(self, error: HeadwaterError, reason: str) -> TaskEnded:
        retry_ms, has_moved = None, self._has_ever_moved
        if self._tries is not None and is_cured_outside(error):
            retry_ms = pause_ms(0 if has_moved else self._tries)
            reason = reason_of(reason, self._around.clock.now_ms() + retry_ms)
        logger.error("%s is quarantined: %s", self._task, reason)
        kind = type(error).__name__
        return TaskEnded(self._task, TaskState.QUARANTINED, reason, kind, retry_ms, has_moved)

    async def _after_crash(self, bug: Exception) -> TaskEnded | None:
        """A bug, ours or of a user's function: only the log holds its words, which may quote
        anything; status names the place."""
        reason, kind = f"crashed by {place_of(bug)}", type(bug).__name__
        text = self._around.redact("".join(traceback.format_exception(bug)))
        count = self._crashes.on_crash(self._around.clock.monotonic_ms())
        if count >= CRASHES_MAX:
            logger.error("%s is quarantined, %s for the third time\n%s", self._task, reason, text)
            reason = f"{reason}, {count} times in ten minutes"
            return TaskEnded(self._task, TaskState.QUARANTINED, reason, kind)
        if count == 1:
            self._crash_backoff.reset()
        delay_ms = self._crash_backoff.next_ms()
        logger.error(
            "%s was %s and starts again in %.1f s\n%s",
            self._task,
            reason,
            delay_ms / 1_000,
            text,
        )
        await self._pause(delay_ms, reason)
        return None

    async def _pause(self, delay_ms: int, reason: str) -> None:
        self._report_state(TaskState.RETRYING, reason)
        await self._around.sleep(delay_ms / 1_000)

    def _pass_on(self, report: Report) -> None:
        self._has_moved = self._has_moved or isinstance(report, RowsMoved)
        self._has_ever_moved = self._has_ever_moved or self._has_moved
        self._report(report)

    def _report_state(self, state: TaskState, reason: str = "") -> None:
        self._report(StateChanged(self._task.pipeline, self._task.name, "", state, reason))


def expected_error(failure: Exception) -> HeadwaterError | None:
    """The error behind a failure, also of a group of tasks that failed together: a takeover before
    everything else, then what needs a person. None when a bug is among them."""
    leaves = [disk_full(each) if lacks_room(each) else each for each in leaves_of(failure)]
    errors = [each for each in leaves if isinstance(each, HeadwaterError)]
    if len(errors) < len(leaves):
        return next((each for each in errors if isinstance(each, Fenced)), None)
    return min(errors, key=lambda each: (not isinstance(each, Fenced), each.cure is Cure.TIME))


@dataclass(slots=True)
class Backoff:
    """The pause before each further attempt: doubled up to a limit, and never quite the same, so
    that what failed together does not come back together."""

    patience: RetryPolicy
    random: Random
    attempts: int = 0

    def next_ms(self) -> int:
        # 2 ** 30 is beyond every limit; an outage of a week must not make the number itself long.
        steepest = min(self.attempts, 30)
        self.attempts += 1
        full = min(self.patience.backoff_ms << steepest, self.patience.backoff_ms_max)
        return round(full * (0.75 + self.random.random() / 4))

    def reset(self) -> None:
        self.attempts = 0


@dataclass(slots=True)
class Incident:
    """Failures that belong together: from the first until the task has run well again."""

    backoff: Backoff
    since_ms: int | None = None

    def on_ran(self, *, for_ms: int, has_moved: bool) -> None:
        """How the attempt went that has just failed."""
        if has_moved or for_ms >= self.backoff.patience.for_ms:
            self.since_ms = None
            self.backoff.reset()

    def next_delay_ms(self, now_ms: int, *, is_connection: bool) -> int | None:
        """None when it was tried for long enough; only connections are tried for ever."""
        if self.since_ms is None:
            self.since_ms = now_ms
        is_over = now_ms - self.since_ms >= self.backoff.patience.for_ms
        if is_over and not is_connection:
            return None
        return self.backoff.next_ms()


@dataclass(slots=True)
class Crashes:
    """Failures that nobody foresaw: the third within ten minutes is the last."""

    times_ms: deque[int] = field(default_factory=deque)

    def on_crash(self, now_ms: int) -> int:
        """How many there were within the window, this one included."""
        self.times_ms.append(now_ms)
        while self.times_ms[0] <= now_ms - CRASH_WINDOW_MS:
            self.times_ms.popleft()
        return len(self.times_ms)

    def copy(self) -> "Crashes":
        return Crashes(deque(self.times_ms))
