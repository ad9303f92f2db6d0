"""Rebuilds a quarantined table of a target that cannot take its new schema in place."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import Cure, HeadwaterError
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import load_generations
from headwater.pipelines.journal.replacements import being_read_again, replacements_of
from headwater.pipelines.loops.assembly import keeps_rows
from headwater.pipelines.reports import ReadProgress, Report, Reporter, RowsMoved
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    TableRebuild,
    beginnings_in,
    find_rebuilding,
    rebuild,
    rebuildable,
)

logger = logging.getLogger(__name__)

POLL_S = 0.5
TRIES_MAX = 5
"""After so many failures that time may cure the table waits as long as any other failed one."""


async def cross_over(
    loaded: LoadedPipeline,
    part: LoadedPart,
    table: str,
    log: Log,
    *,
    clock: Clock,
    report: Reporter,
    beginnings: dict[TopicPartition, int],
    stop: Callable[[], Awaitable[None]],
) -> str:
    """Rebuilds the table; returns why it does not have the new schema, or an empty text.

    The copy is filled from the log after the source's re-read, if there is one, and swapped in only
    if it equals the log; `stop` ends the sink's delivery before that. A table that does not exist
    yet is put into `beginnings`: it can begin at the re-read.
    """
    progress, tries = _Progress(loaded.name, part.name, table, report), 0
    try:
        rebuilding = await find_rebuilding(loaded, log, table=table, sink=part.name)
        if not keeps_rows(part, rebuilding.subject.schema):
            return "a target that keeps a history is not rebuilt by itself for a new schema"
        while True:
            await _until_replaced(rebuilding, log)
            rebuilding = await find_rebuilding(loaded, log, table=table, sink=part.name)
            begun = await beginnings_in(rebuilding, log)
            if begun and await _holds_nothing(rebuilding, log, clock=clock):
                beginnings |= begun
                return ""
            try:
                failure = await _rebuild_table(rebuilding, log, progress, stop, clock=clock)
            except HeadwaterError as error:
                failure = f"the table could not be rebuilt for its new schema: {error}"
                if error.cure is Cure.TIME and tries < TRIES_MAX:
                    tries += 1
                    logger.warning("%s: %s is rebuilt once more: %s", part.name, table, error)
                    await asyncio.sleep(POLL_S * tries)
                    continue
            if not failure or not await _has_moved_on(rebuilding, begun, log):
                return failure
    except HeadwaterError as error:
        return f"the table could not be rebuilt for its new schema: {error}"


async def _has_moved_on(
    rebuilding: TableRebuild, begun: Mapping[TopicPartition, int], log: Log
) -> bool:
    """Returns whether the table was read again, or got another form, since the copy was begun."""
    if begun != await beginnings_in(rebuilding, log):
        return True
    table, sink = str(rebuilding.target), rebuilding.part.name
    now = await find_rebuilding(rebuilding.loaded, log, table=table, sink=sink)
    return now.subject.schema != rebuilding.subject.schema


async def _rebuild_table(
    rebuilding: TableRebuild,
    log: Log,
    progress: "_Progress",
    stop: Callable[[], Awaitable[None]],
    *,
    clock: Clock,
) -> str:
    """Returns why the copy is not swapped in; empty if it is."""
    task, table = rebuilding.part.name, progress.table
    logger.info("%s: %s is rebuilt from the log for its new schema", task, table)
    wanted = RebuildOptions(swaps=True, verifies=True)
    rebuilt = await rebuild(
        rebuilding,
        log,
        wanted,
        is_running=False,
        clock=clock,
        reporter=progress.count,
        before_swap=stop,
    )
    if rebuilt.verdict is not None and not rebuilt.verdict.is_as_told:
        again = f"headwater rebuild {rebuilding.loaded.name}/{table} --verify"
        if problem := rebuilt.verdict.problem:
            return (
                "the new table could not be compared with the log, so the old one stays:"
                f" {problem}; {again} tries it again"
            )
        return f"the new table differs from the log, so the old one stays: {again} names the rows"
    logger.info("%s: the new %s has %d rows from the log", task, table, rebuilt.rows)
    progress.finish()
    return ""


async def _holds_nothing(rebuilding: TableRebuild, log: Log, *, clock: Clock) -> bool:
    """Returns whether the target has no table yet, of this or a former topic."""
    generations = await load_generations(log, rebuilding.loaded.name, rebuilding.topics)
    live = rebuildable(rebuilding, clock=clock)
    try:
        return not await live.committed_offsets(generations.line_of(rebuilding.topics))
    finally:
        await live.close()


@dataclass(slots=True)
class _Progress:
    pipeline: str
    task: str
    table: str
    report: Reporter
    rows: int = 0

    def count(self, said: Report) -> None:
        if isinstance(said, RowsMoved):
            self.rows += said.rows
            self._report(is_done=False)

    def finish(self) -> None:
        self._report(is_done=True)

    def _report(self, *, is_done: bool) -> None:
        rows = self.rows
        self.report(
            ReadProgress(self.pipeline, self.task, self.table, rows, None, None, None, is_done)
        )


async def _until_replaced(rebuilding: TableRebuild, log: Log) -> None:
    tables = {stored.schema.table for stored in rebuilding.sources}
    while True:
        pending = replacements_of(await load_positions(log, rebuilding.loaded.name))
        if not tables & pending.keys():
            return
        for each in pending.values():
            if each.table in tables and each.phase is Phase.QUARANTINED:
                raise being_read_again(each, "")
        await asyncio.sleep(POLL_S)
