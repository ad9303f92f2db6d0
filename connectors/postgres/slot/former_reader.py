"""Waits for a slot that the server still keeps for an earlier run of this pipeline: of a machine
that is gone or cut off it hears nothing for a while."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from psycopg import sql

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.slot.replication_slot import once_left
from headwater.core_log.foundation.errors import Diagnostic, SourceUnavailable

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
MARGIN_SECONDS = 10.0
"""Time beyond wal_sender_timeout after which the reader is known to answer the server."""

READER = """
SELECT s.active_pid, t.setting::int
FROM pg_catalog.pg_replication_slots s
JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
CROSS JOIN pg_catalog.pg_settings t
WHERE s.slot_name = {} AND a.application_name = {} AND t.name = 'wal_sender_timeout'
"""
"""When a reader was last heard is shown to some roles only."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FormerReader:
    """A reader with the name of our connections."""

    pid: int
    timeout_ms: int
    """Time without an answer after which the server ends it; 0 means never."""

    def finding(self) -> Diagnostic:
        waits = f"{self.timeout_ms / 1_000:g} s after the last answer of that run"
        end = f"ends it {waits}" if self.timeout_ms else "does not end it by itself"
        return Diagnostic(
            f"the slot is held for an earlier run of this pipeline: pid {self.pid}; the server"
            f" {end} (wal_sender_timeout)",
            f"wait; or, if that run is dead: SELECT pg_terminate_backend({self.pid});",
            is_fatal=False,
        )


async def once_free(
    attempt: Callable[[], Awaitable[T]],
    line: PgConnection,
    *,
    slot: str,
    reader: str,
    say: Callable[[Diagnostic | None], None],
) -> T:
    """Repeats the attempt while the slot's reader has the name `reader` and does not answer the
    server. Raises `SourceUnavailable` where it does, and where the reader is somebody else."""
    time = asyncio.get_running_loop().time
    first: FormerReader | None = None
    first_seconds, is_said = time(), False
    try:
        while True:
            try:
                return await (once_left(attempt) if first is None else attempt())
            except SourceUnavailable as error:
                if "pid" not in error.facts:
                    raise
                found = await find(line, slot, reader)
                if found is None and first is None:
                    raise
            if found is None:  # it has just left, or somebody else came
                first = None
                continue
            if found != first:
                first, first_seconds, is_said = found, time(), True
                finding = found.finding()
                logger.warning("%s\n  hint: %s", finding.problem, finding.hint)
                say(finding)
            elif found.timeout_ms and time() - first_seconds > limit_seconds(found):
                raise SourceUnavailable(
                    "another run of this pipeline streams from the slot",
                    slot=slot,
                    pid=found.pid,
                    hint="end that run, or give this pipeline its own slot: `slot.name: ...`",
                )
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if is_said:
            say(None)


def limit_seconds(found: FormerReader) -> float:
    return found.timeout_ms / 1_000 + MARGIN_SECONDS


async def find(line: PgConnection, slot: str, reader: str) -> FormerReader | None:
    command = sql.SQL(READER).format(sql.Literal(slot), sql.Literal(reader))
    with in_our_words("the server does not show the slot's reader"):
        cursor = await line.execute(command)
        row = await cursor.fetchone()
    return None if row is None else FormerReader(int(row[0]), int(row[1]))
