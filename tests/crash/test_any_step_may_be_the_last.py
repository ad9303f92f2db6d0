"""Whichever operation of the disk is the last, by a kill or a power cut, what was told holds."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import Isolation, TopicPartition
from tests.budget import IS_LONG
from tests.contract.records import batch_of, read_all, read_to
from tests.fakes import FaultyFiles, MemoryFiles, PowerCut

PARTS = [TopicPartition("t", 0), TopicPartition("t", 1)]
CONFIG = {"segment.bytes": "600", "index.interval.bytes": "100"}
SETTINGS = BrokerSettings(data=Path("/data"), listen="127.0.0.1:0", internal_partitions=1)
TRANSACTIONS = 8
STEPS_TRIED = 400 if IS_LONG else 40


@dataclass
class Told:
    """What the log said before the power went."""

    kept: list[str] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    readable: dict[TopicPartition, list[str]] = field(default_factory=dict)


class LastStep:
    """The power goes before that operation, whichever thread comes to it."""

    def __init__(self, step: int | None) -> None:
        self._left, self._lock = step, threading.Lock()
        self.count = 0
        self.is_cut = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "read":
            return
        with self._lock:
            self.count += 1
            if self._left is None or self.count < self._left:
                return
        self._loop.call_soon_threadsafe(self.is_cut.set)
        raise PowerCut


async def live(log: EmbeddedLog, told: Told) -> None:
    """Transactions and plain appends, some segments long; all that is told is written down."""
    await log.ensure_topic(TopicSettings(name="t", partitions=2, config=CONFIG))
    writer = await log.writer("w")
    for number in range(1, TRANSACTIONS + 1):
        await log.append(PARTS[number % 2], batch_of(f"plain {number} " + "." * 80))
        told.kept.append(f"plain {number} " + "." * 80)
        try:
            async with writer.transaction() as transaction:
                for part in PARTS:
                    await transaction.append(part, batch_of(f"{number}"))
                await transaction.commit_offsets("g", {PARTS[0]: number})
                if number % 3 == 0:
                    raise Aborting
            told.committed.add(number)
        except Aborting:
            told.aborted.add(number)
        for part in PARTS:
            end = (await log.bounds([part]))[part].stable
            told.readable[part] = await read_to(log, part, end)


class Aborting(Exception):
    """The block ends so on purpose."""


async def until_cut(files: MemoryFiles, step: int | None) -> tuple[Told, int]:
    """Lives until the power goes, or to the end; and how many operations that took."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    told, faulty = Told(), FaultyFiles(files)
    fault = faulty.fault = LastStep(step)
    starting = asyncio.ensure_future(RunningBroker.start(SETTINGS, files=faulty))
    cut = asyncio.ensure_future(fault.is_cut.wait())
    await asyncio.wait([starting, cut], return_when=asyncio.FIRST_COMPLETED)
    if starting.done() and starting.exception() is None:
        log = EmbeddedLog(starting.result())
        living = asyncio.ensure_future(live(log, told))
        await asyncio.wait([living, cut], return_when=asyncio.FIRST_COMPLETED)
        await KafkaLog.close(log)  # the client's side only: nobody stops the broker
        log.running.server.stop_accepting()
        if step is None:
            await living
    return told, fault.count


async def check(files: MemoryFiles, told: Told) -> None:
    running = await RunningBroker.start(SETTINGS, files=files)
    log = EmbeddedLog(running)
    await log.ensure_topic(TopicSettings(name="t", partitions=2, config=CONFIG))
    values = {part: await read_all(log, part) for part in PARTS}
    everything = [value for part in PARTS for value in values[part]]
    for kept in told.kept:
        assert everything.count(kept) == 1
    visible = [{int(value) for value in values[part] if value.isdigit()} for part in PARTS]
    assert visible[0] == visible[1]
    assert told.committed <= visible[0]
    assert not told.aborted & visible[0]
    offsets = await log.committed_offsets("g")
    assert offsets.get(PARTS[0], 0) == max(visible[0], default=0)
    for part, before in told.readable.items():
        assert values[part][: len(before)] == before
        bounds = (await log.bounds([part]))[part]
        assert bounds.stable == bounds.end
        await check_uncommitted(log, part, bounds.end)
    writer = await log.writer("w")
    async with writer.transaction() as transaction:
        await transaction.append(PARTS[0], batch_of("afterwards"))
    assert (await read_all(log, PARTS[0]))[-1] == "afterwards"
    await log.close()


async def check_uncommitted(log: EmbeddedLog, part: TopicPartition, end: int) -> None:
    await read_to(log, part, end, isolation=Isolation.UNCOMMITTED)


def steps(count: int) -> Sequence[int]:
    """All when there is time; else every so many, from a place that differs from run to run."""
    stride = max(count // STEPS_TRIED, 1)
    return range(1 + Random().randrange(stride), count, stride)


# What was about to begin when the power went never does.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.crash
def test_an_end_before_any_operation_of_the_disk_breaks_no_promise() -> None:
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    _, count = asyncio.run(until_cut(MemoryFiles(), None))
    for step in steps(count):
        files = MemoryFiles()
        told, _ = asyncio.run(until_cut(files, step))
        after = [files.after_power_cut(Random(step + seed)) for seed in range(2)]
        for survived in (*after, files.after_kill()):
            try:
                asyncio.run(check(survived, told))
            except BaseException as error:
                error.add_note(f"operation {step} was never done")
                raise
