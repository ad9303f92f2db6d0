"""Makes a target's table anew that cannot take its new form in place, while its sink holds it."""

import asyncio
import logging

from core_log.clock import Clock
from core_log.errors import HeadwaterError
from core_log.log import Log
from pipelines.file.loading import LoadedPart, LoadedPipeline
from pipelines.journal.positions import load_positions
from pipelines.journal.replacements import replacements_of
from pipelines.loops.build import keeps_rows
from pipelines.proving.rebuild import Rebuilding, Wanted, find_rebuilding, rebuild

logger = logging.getLogger(__name__)

POLL_S = 0.5


async def cross_over(
    loaded: LoadedPipeline, part: LoadedPart, table: str, log: Log, *, clock: Clock
) -> bool:
    """Whether the table in place has the new form now. The copy is filled from the log once the
    source has read the table again, where it does, and swapped in only when equal to the log."""
    try:
        rebuilding = await find_rebuilding(loaded, log, table=table, sink=part.name)
        if not keeps_rows(part, rebuilding.target):
            return False  # a history is more than what the log still tells
        await _until_replaced(rebuilding, log)
        rebuilding = await find_rebuilding(loaded, log, table=table, sink=part.name)
        logger.info("%s: %s is made anew from the log for its new form", part.name, table)
        wanted = Wanted(swaps=True, verifies=True)
        rebuilt = await rebuild(
            rebuilding, log, wanted, is_running=False, clock=clock, tell=lambda _: None
        )
    except HeadwaterError as error:
        logger.error("%s: %s could not be made anew for its new form: %s", part.name, table, error)
        return False
    if rebuilt.verdict is not None and not rebuilt.verdict.is_as_told:
        logger.error(
            "%s: the new %s differs from the log, so the old one stays: headwater rebuild %s/%s"
            " --verify names the rows",
            part.name,
            table,
            loaded.name,
            table,
        )
        return False
    logger.info("%s: the new %s has %d rows from the log", part.name, table, rebuilt.rows)
    return True


async def _until_replaced(rebuilding: Rebuilding, log: Log) -> None:
    tables = {stored.schema.table for stored in rebuilding.sources}
    while True:
        pending = replacements_of(await load_positions(log, rebuilding.loaded.name))
        if not tables & pending.keys():
            return
        await asyncio.sleep(POLL_S)
