"""A task is tried again while time may cure it, and given up, with the reason, when it may not."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from random import Random

import pytest

from headwater.core_log.foundation.errors import (
    ConfigError,
    DiskFull,
    Fenced,
    HeadwaterError,
    SinkRejected,
    SinkUnavailable,
    StorageFailed,
)
from headwater.pipelines.reports import Report, Reporter, RowsMoved, StateChanged, TaskState
from headwater.pipelines.running.supervisor import (
    Backoff,
    RetryPolicy,
    TaskEnded,
    TaskEnvironment,
    TaskId,
    supervise,
)
from tests.fakes import SimulatedClock

TASK = TaskId("shop", "sql")
PATIENCE = RetryPolicy(for_ms=60_000, backoff_ms=1_000, backoff_ms_max=8_000)
MOVED = RowsMoved("shop", "sql", "orders", 1, 1, 0, 0)


class Script:
    """A task whose lives are played in turn: an error to raise, or anything else to do."""

    def __init__(self, *lives: Exception | Callable[["Script"], None]) -> None:
        self.clock = SimulatedClock()
        self.reports: list[Report] = []
        self.pauses: list[float] = []
        self._lives = list(lives)
        self.report: Reporter = self.reports.append

    async def __call__(self, report: Reporter) -> None:
        self.report = report
        life = self._lives.pop(0) if len(self._lives) > 1 else self._lives[0]
        if isinstance(life, Exception):
            raise life
        life(self)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(round(seconds * 1_000))
        if len(self.pauses) > 1_000:
            raise asyncio.CancelledError

    async def play(self, *, tries: int | None = None) -> TaskEnded:
        around = TaskEnvironment(
            self.clock, Random(7), self.sleep, lambda text: text.replace("hunter2", "***")
        )
        return await supervise(TASK, self, PATIENCE, self.reports.append, around, tries=tries)

    @property
    def states(self) -> list[TaskState]:
        return [each.state for each in self.reports if isinstance(each, StateChanged)]

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.reports if isinstance(each, StateChanged)]


def done(_: Script) -> None:
    pass


async def test_a_task_that_has_nothing_more_to_do_is_done() -> None:
    script = Script(done)

    ended = await script.play()

    assert ended == TaskEnded(TASK, TaskState.DONE)
    assert script.states == [TaskState.STARTING, TaskState.DONE]


async def test_a_failure_that_time_cures_is_tried_again_after_ever_longer_pauses() -> None:
    script = Script(*[StorageFailed("disk full")] * 5, done)

    ended = await script.play()

    assert ended.state is TaskState.DONE
    full = [1, 2, 4, 8, 8]
    assert all(
        0.75 * most <= pause <= most for most, pause in zip(full, script.pauses, strict=True)
    )
    assert script.states == [TaskState.STARTING, *[TaskState.RETRYING] * 5, TaskState.DONE]


async def test_a_failure_that_does_not_heal_within_its_time_is_quarantined() -> None:
    script = Script(StorageFailed("disk full", path="/data"))

    ended = await script.play()

    assert ended.state is TaskState.QUARANTINED and ended.kind == "StorageFailed"
    assert ended.reason == "disk full (path='/data')"
    assert 60 <= sum(script.pauses) <= 68
    assert script.states[-1] is TaskState.QUARANTINED


async def test_a_full_disk_is_not_tried_for_ever_and_again_once_its_cause_may_be_cured() -> None:
    script = Script(DiskFull("the disk is full", path="/lake", free_bytes=0))

    ended = await script.play(tries=0)

    assert ended.state is TaskState.QUARANTINED and ended.retry_ms == 60_000
    assert ended.reason.startswith("the disk is full (path='/lake', free_bytes=0)\n  next try: ")
    assert 60 <= sum(script.pauses) <= 68


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_a_write_without_room_is_no_bug_wherever_it_was_made(code: int) -> None:
    script = Script(OSError(code, os.strerror(code), "/spill/part"), done)

    ended = await script.play()

    assert ended.state is TaskState.DONE
    assert script.reasons[1].startswith("the disk is full (path='/spill/part', disk='/'")
    assert f"reason='{os.strerror(code).lower()}'" in script.reasons[1]


async def test_connections_are_tried_for_ever_and_slowly() -> None:
    script = Script(SinkUnavailable("connection refused"))

    with pytest.raises(asyncio.CancelledError):
        await script.play()

    assert set(script.states[1:-1]) == {TaskState.RETRYING}
    assert all(6 <= pause <= 8 for pause in script.pauses[3:])


async def test_a_failure_after_progress_is_a_new_incident() -> None:
    def move_and_fail(script: Script) -> None:
        script.report(MOVED)
        script.clock.advance(40_000)
        raise StorageFailed("disk full")

    script = Script(*[move_and_fail] * 20, done)

    ended = await script.play()

    assert ended.state is TaskState.DONE
    assert max(script.pauses) <= 1


async def test_a_failure_after_a_long_quiet_life_is_a_new_incident() -> None:
    def idle_and_fail(script: Script) -> None:
        script.clock.advance(PATIENCE.for_ms)
        raise StorageFailed("disk full")

    script = Script(*[idle_and_fail] * 20, done)

    ended = await script.play()

    assert ended.state is TaskState.DONE
    assert max(script.pauses) <= 1


async def test_a_failure_that_only_a_person_can_cure_is_tried_once() -> None:
    script = Script(SinkRejected("the table has another key", table="orders", hint="drop it"))

    ended = await script.play()

    assert not script.pauses
    assert ended == TaskEnded(
        TASK,
        TaskState.QUARANTINED,
        "the table has another key (table='orders')\n  hint: drop it",
        "SinkRejected",
    )


async def test_a_task_that_somebody_newer_replaced_ends_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(Fenced("a newer writer has taken over"))

    with caplog.at_level(logging.INFO):
        ended = await script.play()

    assert ended.state is TaskState.STOPPED and not script.pauses
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_a_bug_is_told_with_its_traceback_and_tried_twice_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(KeyError("hunter2"))

    ended = await script.play()

    assert ended.state is TaskState.QUARANTINED
    assert len(script.pauses) == 2
    assert "Traceback" in caplog.text and "__call__" in caplog.text


async def test_secrets_and_words_of_a_bug_stay_out_of_status_and_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(
        ValueError("cannot parse 4111-1111 with hunter2"), SinkUnavailable("no", url="u:hunter2@h")
    )

    with pytest.raises(asyncio.CancelledError):
        await script.play()

    assert "hunter2" not in caplog.text and "hunter2" not in "".join(script.reasons)
    assert "4111" not in "".join(script.reasons)
    assert "ValueError in __call__" in script.reasons[1]


async def test_bugs_far_apart_are_forgiven() -> None:
    def idle_and_crash(script: Script) -> None:
        script.clock.advance(400_000)
        raise ZeroDivisionError

    script = Script(*[idle_and_crash] * 10, done)

    ended = await script.play()

    assert ended.state is TaskState.DONE


@pytest.mark.parametrize(
    ("group", "state"),
    [
        ([SinkUnavailable("down"), ConfigError("no such column")], TaskState.QUARANTINED),
        ([ConfigError("no such column"), Fenced("taken over")], TaskState.STOPPED),
        ([KeyError("x"), Fenced("taken over")], TaskState.STOPPED),
    ],
)
async def test_the_graver_of_two_failures_that_come_together_counts(
    group: list[Exception], state: TaskState
) -> None:
    script = Script(ExceptionGroup("tasks", group), done)

    ended = await script.play()

    assert ended.state is state


async def test_a_bug_among_expected_failures_is_still_a_bug() -> None:
    script = Script(ExceptionGroup("tasks", [SinkUnavailable("down"), KeyError("x")]), done)

    ended = await script.play()

    assert ended.state is TaskState.DONE
    assert "KeyError" in script.reasons[1]


async def test_being_cancelled_is_the_only_stop_and_is_told() -> None:
    reports: list[Report] = []

    async def wait(_: Reporter) -> None:
        await asyncio.Event().wait()

    around = TaskEnvironment(SimulatedClock(), Random(7))
    task = asyncio.ensure_future(supervise(TASK, wait, PATIENCE, reports.append, around))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [r.state for r in reports if isinstance(r, StateChanged)] == [
        TaskState.STARTING,
        TaskState.STOPPED,
    ]


def test_pauses_stay_below_their_limit_however_long_it_takes() -> None:
    backoff = Backoff(PATIENCE, Random(7))

    pauses = [backoff.next_ms() for _ in range(10_000)]

    assert max(pauses) <= PATIENCE.backoff_ms_max
    assert len(set(pauses[-100:])) > 1, "what failed together does not come back together"


def test_errors_that_time_cures_are_known_as_such() -> None:
    """The supervisor looks at nothing else."""
    curable = {
        kind.__name__ for kind in HeadwaterError.__subclasses__() if kind.cure.name == "TIME"
    }

    assert {"SourceUnavailable", "SinkUnavailable", "LogUnavailable", "StorageFailed"} <= curable
