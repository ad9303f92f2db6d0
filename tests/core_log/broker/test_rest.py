"""A broker of which nobody asks anything does next to nothing, however many partitions it has, from
one round of retention and compaction to the next."""

import asyncio
import selectors
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

import pytest

from benchmarks.rest import Calls
from headwater.core_log.broker.coordination import TICK_S
from headwater.core_log.broker.lifecycle import PeriodicTasks
from headwater.core_log.groups.transactions import VERSION_2
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.core_log.broker.in_memory import create, started
from tests.fakes import MemoryFiles, SimulatedClock

REST_S, HOUR_MS = 60, 3_600_000
CALLS_PER_S_MAX = 50
TIMEOUT_MS = 20_000
T = TypeVar("T")


class Skip(selectors.SelectSelector):
    """Nobody waits: where nothing has happened, the time is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(None if timeout is None else 0)
        if not found and timeout is not None:
            self.now_s += timeout
        return found


class SkippedTime(asyncio.SelectorEventLoop):
    """Its time passes as fast as it is waited for, and work for a thread is done at once: a thread
    would need real time, and here hours pass meanwhile."""

    def __init__(self) -> None:
        self.skip = Skip()
        super().__init__(self.skip)

    def time(self) -> float:
        return self.skip.now_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        outcome = self.create_future()
        try:
            outcome.set_result(func(*args))
        except Exception as error:
            outcome.set_exception(error)
        return outcome


class LoopClock(SimulatedClock):
    """The loop's time."""

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    monotonic_ms = now_ms


async def rest(partitions: int) -> Mapping[str, int]:
    """Calls of our own functions, behind a while in which all has been written down."""
    broker = await started(
        MemoryFiles(), clock=LoopClock(), internal_partitions=16, housekeeping_interval_ms=HOUR_MS
    )
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        await broker.create_unknown(name, may_create=False)
    await create(broker, "t", partitions=partitions)
    for number in range(3):
        name = f"id-{number}"
        answer = await broker.transactions.init_producer_id(name, timeout_ms=60_000)
        await broker.transactions.end(name, answer.producer, commit=False, version=VERSION_2)
    housekeeping = PeriodicTasks(broker)
    housekeeping.start()
    await asyncio.sleep(REST_S)
    calls = Calls()
    sys.setprofile(calls)
    await asyncio.sleep(REST_S)
    sys.setprofile(None)
    await housekeeping.stop()
    await broker.close()
    return {name: n for name, n in calls.counts.items() if not name.startswith("tests/")}


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 100])
def test_a_process_at_rest_calls_few_of_our_functions(partitions: int) -> None:
    with asyncio.Runner(loop_factory=SkippedTime) as runner:
        counts = runner.run(rest(partitions))

    assert sum(counts.values()) / REST_S < CALLS_PER_S_MAX, sorted(counts.items())


async def overdue() -> list[str]:
    """How a transaction stands just before its time is over, and a tick behind it."""
    broker = await started(MemoryFiles(), clock=LoopClock(), internal_partitions=1)
    await broker.create_unknown(TRANSACTIONS_TOPIC, may_create=False)
    await create(broker, "t")
    await asyncio.sleep(REST_S)
    producer = (await broker.transactions.init_producer_id("id", timeout_ms=TIMEOUT_MS)).producer
    await broker.transactions.add_partitions("id", producer, [TopicPartition("t", 0)])
    found = broker.transactions.find("id")
    assert found is not None
    seen = []
    for wait_s in (TIMEOUT_MS / 1000 - TICK_S, 3 * TICK_S):
        await asyncio.sleep(wait_s)
        seen.append(found.current.state.title)
    await broker.close()
    return seen


def test_a_deadline_is_kept_though_nobody_has_asked_for_long() -> None:
    with asyncio.Runner(loop_factory=SkippedTime) as runner:
        assert runner.run(overdue()) == ["Ongoing", "CompleteAbort"]
