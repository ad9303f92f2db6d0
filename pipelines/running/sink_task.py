"""Runs a sink: it delivers, and meanwhile a table whose new schema it refuses is rebuilt."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from headwater.core_log.client.gather import let_go
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.loops.deliver.deliver import RebuildsNeeded
from headwater.pipelines.loops.deliver.quarantine import Quarantine, reason_of
from headwater.pipelines.reports import StateChanged, TaskRun, TaskState

logger = logging.getLogger(__name__)


async def run_sink(task: TaskRun) -> None:
    """Delivers while one table is rebuilt.

    Before the swap the delivery is stopped: no slice of it may meet the new table. Then it begins
    again, since it remembers where the old table stood.
    """
    rebuilding = _Rebuilding(task)
    while True:
        delivering = asyncio.ensure_future(
            run_task(
                task,
                rebuilds=rebuilding.needed,
                quarantine=rebuilding.quarantine,
                beginnings=rebuilding.beginnings,
            )
        )
        changing = asyncio.ensure_future(rebuilding.run(stop=partial(let_go, delivering)))
        all_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([delivering, changing], return_when=asyncio.FIRST_COMPLETED)
            if delivering.cancelled():
                await asyncio.wait([changing])
            if not changing.done():
                delivering.result()
                all_ended = asyncio.ensure_future(rebuilding.needed.wait_all_ended())
                await asyncio.wait([all_ended, changing], return_when=asyncio.FIRST_COMPLETED)
            if not changing.done():
                return
            changing.result()
        finally:
            await let_go(delivering, changing, all_ended)


@dataclass(slots=True)
class _Rebuilding:
    """The rebuilds of one sink, over several deliveries."""

    task: TaskRun
    needed: RebuildsNeeded = field(default_factory=RebuildsNeeded)
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Survives a swap: what was refused then is not tried again sooner for that."""
    beginnings: dict[TopicPartition, int] = field(default_factory=dict)

    async def run(self, *, stop: Callable[[], Awaitable[None]]) -> None:
        """Rebuilds tables; ends with the first for which the delivery was stopped."""
        is_stopped = False

        async def stop_once() -> None:
            nonlocal is_stopped
            await stop()
            is_stopped = True

        while not is_stopped:
            table, refusal = await self.needed.next()
            failure = await self._rebuild(table, stop_once)
            if failure:
                self._give_up(table, f"{failure}\n{refusal}")
            else:
                await stop_once()
                self.quarantine.end_rebuild(table)
                self._report(table, TaskState.RUNNING)
            self.needed.end(table)

    async def _rebuild(self, table: str, stop: Callable[[], Awaitable[None]]) -> str:
        # Late, since most sinks never need it.
        from headwater.pipelines.time_travel.rebuild.schema_change import cross_over

        task = self.task
        part = next(part for part in task.loaded.sinks if part.name == task.name)
        return await cross_over(
            task.loaded,
            part,
            table,
            task.log,
            clock=task.clock,
            report=task.report,
            beginnings=self.beginnings,
            stop=stop,
        )

    def _give_up(self, table: str, why: str) -> None:
        due_ms = self.quarantine.give_up_rebuild(table, now_ms=self.task.clock.now_ms())
        reason = reason_of(why, due_ms)
        logger.error("%s: %s is quarantined: %s", self.task.name, table, reason)
        self._report(table, TaskState.QUARANTINED, reason)

    def _report(self, table: str, state: TaskState, reason: str = "") -> None:
        self.task.report(StateChanged(self.task.loaded.name, self.task.name, table, state, reason))
