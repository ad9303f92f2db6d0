"""One life of a sink, with the tables made anew that cannot take their new form in place."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.assembly import run_unit
from headwater.pipelines.loops.deliver.pending_rebuilds import RebuildsNeeded
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

logger = logging.getLogger(__name__)


async def run_sink(
    loaded: "LoadedPipeline",
    unit: str,
    log: Log,
    *,
    desired: Callable[[], DesiredTaskState],
    clock: Clock,
    report: Reporter,
    until_end: bool,
) -> None:
    """The other tables go on while one is made anew. Then the sink begins again, since it remembers
    where the old table stood."""
    beginnings = dict[TopicPartition, int]()
    while True:
        rebuilds = RebuildsNeeded()
        delivering = asyncio.ensure_future(
            run_unit(
                loaded,
                unit,
                log,
                desired=desired,
                clock=clock,
                report=report,
                until_end=until_end,
                rebuilds=rebuilds,
                beginnings=beginnings,
            )
        )
        changing = asyncio.ensure_future(
            _make_anew(
                loaded, unit, log, rebuilds, clock=clock, report=report, beginnings=beginnings
            )
        )
        given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([delivering, changing], return_when=asyncio.FIRST_COMPLETED)
            if not changing.done():
                delivering.result()
                given_up = asyncio.ensure_future(rebuilds.given_up())
                await asyncio.wait([given_up, changing], return_when=asyncio.FIRST_COMPLETED)
            if not changing.done():
                return
            changing.result()
        finally:
            for task in (delivering, changing, given_up):
                await let_go(task)


async def _make_anew(
    loaded: "LoadedPipeline",
    unit: str,
    log: Log,
    rebuilds: RebuildsNeeded,
    *,
    clock: Clock,
    report: Reporter,
    beginnings: dict[TopicPartition, int],
) -> None:
    """Ends with the first table that has changed places."""
    part = next(part for part in loaded.sinks if part.name == unit)
    while True:
        table, refusal = await rebuilds.next()
        # Late, since most sinks never need it.
        from headwater.pipelines.time_travel.rebuild.schema_change import cross_over

        failure = await cross_over(
            loaded, part, table, log, clock=clock, report=report, beginnings=beginnings
        )
        if not failure:
            report(StateChanged(loaded.name, unit, table, TaskState.RUNNING))
            return
        logger.error("%s: %s is quarantined: %s\n  %s", unit, table, failure, refusal)
        reason = f"{failure}\n{refusal}"
        report(StateChanged(loaded.name, unit, table, TaskState.QUARANTINED, reason))
        rebuilds.give_up(table)
