"""What is given up is looked at again by itself, slowly, where its cause may be cured outside."""

import asyncio
from random import Random
from typing import Any

from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    PositionLost,
    SinkRejected,
    SourceRejected,
)
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.deliver.quarantine import LONGEST_MS, Quarantine
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.supervisor import TaskEnvironment
from headwater.pipelines.running.tasks import Listeners, TaskAssignment, TaskRunner
from tests.fakes import SimulatedClock
from tests.pipelines.running.test_running_pipelines import Theatre, a_file, open_log

DESIRED = DesiredTaskState("shop")
REFUSED = SinkRejected("the target's table is locked", table="orders", hint="unlock it")


def put(quarantine: Quarantine, error: HeadwaterError, now_ms: int) -> str:
    return quarantine.put("t", table="orders", error=error, desired=DESIRED, now_ms=now_ms)


def test_a_held_table_is_tried_again_ever_more_slowly() -> None:
    quarantine, now_ms, pauses = Quarantine(), 0, []

    for _ in range(6):
        began_ms, reason = now_ms, put(quarantine, REFUSED, now_ms)
        while not quarantine.lift(DESIRED, now_ms=now_ms):
            now_ms += 1_000
        pauses.append((now_ms - began_ms) // 1_000)

    assert pauses == [60, 120, 240, 480, LONGEST_MS // 1_000, LONGEST_MS // 1_000]
    assert "next try" in reason and "hint: unlock it" in reason


def test_a_hint_has_the_names_of_the_pipeline_and_the_table() -> None:
    error = PositionLost("the topic is gone", hint="headwater rebuild PIPELINE/TABLE --swap")
    dropped = PositionLost("it is another", hint="headwater drop PIPELINE --data")

    reasons = [put(Quarantine(), each, 0) for each in (error, dropped)]

    assert "hint: headwater rebuild shop/orders --swap\n" in reasons[0]
    assert "hint: headwater drop shop --data\n" in reasons[1]


def test_a_table_that_went_on_meanwhile_is_tried_again_soon() -> None:
    quarantine = Quarantine()
    put(quarantine, REFUSED, 0)
    quarantine.lift(DESIRED, now_ms=60_000)

    quarantine.note_progress("t")
    put(quarantine, REFUSED, 100_000)

    assert quarantine.lift(DESIRED, now_ms=160_000).keys() == {"t"}


def test_a_mistake_of_the_file_waits_for_a_person() -> None:
    quarantine = Quarantine()

    reason = put(quarantine, ConfigError("there is no such column"), 0)

    assert not quarantine.lift(DESIRED, now_ms=10**12) and "next try" not in reason


async def test_a_task_that_was_given_up_begins_again_when_the_cause_is_gone() -> None:
    theatre, told, pauses = Theatre(), list[Report](), list[float]()
    has_paused = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        has_paused.set()

    async with asyncio.TaskGroup() as tasks:
        listeners = Listeners(told.append, lambda _: None, lambda _: None)
        around = TaskEnvironment(SimulatedClock(), Random(7), sleep)
        runner = TaskRunner(tasks, theatre.run_task, open_log, listeners, around)
        file: Any = a_file(source="a")
        runner.start(TaskAssignment(file, "source"))
        for _ in range(2):
            await theatre.until_running("shop/source")
            has_paused.clear()
            theatre.running["shop/source"].set_exception(
                SourceRejected("the publication is gone", hint="CREATE PUBLICATION p")
            )
            await has_paused.wait()
        await theatre.until_running("shop/source")
        await runner.stop_all()

    quarantined = [
        each.reason
        for each in told
        if isinstance(each, StateChanged) and each.state is TaskState.QUARANTINED
    ]
    assert pauses == [60.0, 120.0] and len(theatre.lives) == 3
    assert all("CREATE PUBLICATION p" in each and "next try" in each for each in quarantined)
