"""A pipeline over a simulated log: its source and its sink are processes of their own, which are
killed, paused and started twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import Fenced, HeadwaterError, SinkUnavailable
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.log import Log
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.sinks.sink import Slice
from tests.memory_log import Fuse
from tests.pipelines import pipeline_in_memory
from tests.pipelines.pipeline_in_memory import (
    Change,
    MemorySink,
    MemoryTarget,
    ScriptedSource,
    Transaction,
    fold,
    tables_of,
)
from tests.simulation.load import client_settings
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.trace import Trace
from tests.simulation.virtual_time import LoopClock, Process, simulate
from tests.simulation.world import BROKER, SETTLED_S, Faults

TABLES, KEYS = ("orders", "items"), 12
RETRY_S, COMMIT_S = 0.1, 0.03
LOST_ANSWER_SHARE = 0.05


class Database(list[Transaction]):
    """Committed transactions of a source, which go on being made."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random, self._number = random, 0
        self._rows: dict[str, set[int]] = {table: set() for table in TABLES}
        self.acknowledged = 0
        """The transactions that a source may have forgotten."""
        self.has_committed = asyncio.Event()
        """Set by the next commit, and then another one."""

    def commit(self) -> None:
        """Makes one more transaction, of one or two batches."""
        self.append(
            [
                [self._change() for _ in range(self._random.randint(1, 4))]
                for _ in range(self._random.randint(1, 2))
            ]
        )
        self.has_committed.set()
        self.has_committed = asyncio.Event()

    def _change(self) -> Change:
        self._number += 1
        table, key = self._random.choice(TABLES), self._random.randrange(KEYS)
        rows, value = self._rows[table], f"value {self._number}"
        if self._random.random() < 0.01:
            rows.clear()
            return (table, "t", 0, "")
        if key not in rows:
            rows.add(key)
            return (table, "c", key, value)
        if self._random.random() < 0.3:
            rows.discard(key)
            return (table, "d", key, "")
        return (table, "u", key, value)


class FollowedSource(ScriptedSource):
    """Goes on with what the database commits while it runs."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Fuse())
        self._database = database

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        number = int(resume_from.get("stream", 0))
        assert number >= self._database.acknowledged, "what was acknowledged is read no more"
        while True:
            if number >= len(self._database):
                await self._database.has_committed.wait()
            batches = self._database[number]
            number += 1
            for place, batch in enumerate(batches):
                is_last = place == len(batches) - 1
                positions = {"stream": str(number)} if is_last else {}
                yield ChangeBatch(tables_of(batch, commit=number), positions)

    async def acknowledge(self, positions: Positions) -> None:
        self._database.acknowledged = int(positions["stream"])


class UncertainSink(MemorySink):
    """Now and then it does its work, and its answer is lost."""

    def __init__(self, target: MemoryTarget, random: Random) -> None:
        super().__init__(target, Fuse())
        self._random = random

    async def apply(self, part: Slice) -> None:
        await super().apply(part)
        if self._random.random() < LOST_ANSWER_SHARE:
            raise SinkUnavailable("the answer of the target is lost")


@dataclass(slots=True)
class Role:
    """The source or the sink, which is to run at any time."""

    name: str
    work: Callable[[Log, Process], Any]
    process: Process
    task: "asyncio.Task[None] | None" = None
    former: list[Process] = field(default_factory=list)
    """Processes that are paused, and will go on as if nothing had been."""


class PipelineWorld(pipeline_in_memory.World):
    """The two loops as they ship, between a made-up database and a target in memory."""

    def __init__(self, seed: int, faults: Sequence[Callable[["PipelineWorld"], Any]]) -> None:
        self.random = Random(seed)
        self.database = Database(self._fork())
        super().__init__(self.database, partitions=2)
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop)  # type: ignore[assignment]
        self.network = Network(self._fork())
        self.machine = Machine(self.network, LoopClock(loop), self._fork(), settings=BROKER)
        self.faults = Faults(self.machine, self.network, self._fork())
        self._possible = faults
        self.roles = [
            Role("source", self._run_source, Process("source")),
            Role("sink", self._run_sink, Process("sink")),
        ]
        self.said: list[str] = []
        self.problems: list[str] = []
        """Known at the end."""

    def _fork(self) -> Random:
        return Random(self.random.random())

    async def live(self, virtual_s: float) -> None:
        """Commits and fails for a time, and then waits for the target to be as the database."""
        self.machine.boot()
        loop = asyncio.get_running_loop()
        log = self._new_log("creator")
        await log.ensure_topic(*internal_topics(history_ms=3_600_000))
        for role in self.roles:
            self._start(role)
        end_s = loop.time() + virtual_s
        committing = asyncio.ensure_future(self._commit_until(end_s))
        while (left_s := end_s - loop.time()) > 0:
            await asyncio.sleep(min(left_s, self.random.expovariate(1.0)))
            if self._possible:
                fault = self.random.choice(self._possible)
                self.said.append(f"{loop.time():.3f} {fault.__name__}")
                await fault(self)
            self._start_ended()
        await committing
        self.faults.heal()
        for role in self.roles:
            self._resume_former(role)
        await self._settle()
        self.problems = self._problems()
        for role in self.roles:
            role.process.kill()
        await log.close()
        await self.machine.stop()

    async def _commit_until(self, end_s: float) -> None:
        while asyncio.get_running_loop().time() < end_s:
            self.database.commit()
            await asyncio.sleep(self.random.expovariate(1 / COMMIT_S))

    async def _settle(self) -> None:
        end_s = asyncio.get_running_loop().time() + 2 * SETTLED_S
        while self.target.tables != fold(self.database):
            if asyncio.get_running_loop().time() > end_s:
                return
            self._start_ended()
            await asyncio.sleep(0.1)

    def _problems(self) -> list[str]:
        expected, found = fold(self.database), self.target.tables
        wrong = [
            f"{table}: {found.get(table)} in place of {rows}"
            for table, rows in expected.items()
            if found.get(table, {}) != rows
        ]
        made = sum(len(batch) for transaction in self.database for batch in transaction)
        applied = len(self.target.applied)
        if not len(set(self.target.applied)) == applied == made:
            wrong.append(f"{made} changes were made, and {applied} applied")
        return wrong

    def _start(self, role: Role) -> None:
        role.process = Process(role.name)
        log = self._new_log(role.name)
        role.task = role.process.start(self._run(role.work, log, role.process))

    def _start_ended(self) -> None:
        for role in self.roles:
            if role.process.is_over or (role.task is not None and role.task.done()):
                if role.task is not None and role.task.done() and not role.process.is_over:
                    role.task.result()
                self._start(role)

    async def _run(self, work: Callable[..., Any], log: Log, process: Process) -> None:
        while True:
            try:
                await work(log, process)
            except Fenced:
                return
            except HeadwaterError:
                await asyncio.sleep(RETRY_S)

    async def _run_source(self, log: Log, process: Process) -> None:
        world = self._seen_from(log)
        await world.ingest_from(FollowedSource(self.database))

    async def _run_sink(self, log: Log, process: Process) -> None:
        world = self._seen_from(log)
        sink = UncertainSink(self.target, self._fork())
        await deliver(world.delivery(sink, records=20))

    def _seen_from(self, log: Log) -> pipeline_in_memory.World:
        world = pipeline_in_memory.World(self.database, partitions=2)
        world.log, world.clock = log, self.clock  # type: ignore[assignment]
        return world

    def _new_log(self, name: str) -> KafkaLog:
        return KafkaLog(
            client_settings(self.machine.address),
            dial=self.network.dialer(name),
            random=self._fork(),
        )

    async def kill_a_task(self) -> None:
        role = self.random.choice(self.roles)
        role.process.kill()
        self.network.forget(role.name)
        await asyncio.sleep(self.random.uniform(0, 0.3))

    async def run_a_task_twice(self) -> None:
        """One process stands still, another takes over, and the first goes on."""
        role = self.random.choice(self.roles)
        role.process.pause()
        role.former.append(role.process)
        self._start(role)
        await asyncio.sleep(self.random.choice([0.05, 0.5, 3.0]))
        self._resume_former(role)

    def _resume_former(self, role: Role) -> None:
        for process in role.former:
            process.resume()
        role.former.clear()


def of_the_log(name: str) -> Callable[[PipelineWorld], Any]:
    async def fail(world: PipelineWorld) -> None:
        await getattr(world.faults, name)()

    fail.__name__ = name
    return fail


FAULTS: Sequence[Callable[[PipelineWorld], Any]] = [
    PipelineWorld.kill_a_task,
    PipelineWorld.run_a_task_twice,
    *map(
        of_the_log,
        ("kill", "cut_power", "restart", "stall", "reset_connections", "fail_syncs", "fill_disk"),
    ),
]


def play_pipeline(
    seed: int,
    *,
    virtual_s: float,
    faults: Sequence[Callable[[PipelineWorld], Any]] = FAULTS,
    trace: Trace | None = None,
) -> PipelineWorld:
    """Plays one history; returns the world as it is at the end."""

    async def work() -> PipelineWorld:
        world = PipelineWorld(seed, faults)
        await world.live(virtual_s)
        return world

    return simulate(Random(seed), work, trace)
