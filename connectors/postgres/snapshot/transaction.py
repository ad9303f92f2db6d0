"""Transactions that read a table beside the stream: their snapshots, and when they may begin."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headwater.connectors.postgres.server.connection import (
    PgConnection,
    in_our_words,
    to_headwater_error,
)
from headwater.connectors.postgres.server.lsn import EPOCH, FIRST_NORMAL_XID, PgSnapshot, parse_lsn
from headwater.connectors.postgres.slot.heartbeat import PREFIX
from headwater.connectors.postgres.snapshot.row_mapper import SnapshotPoint
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)

LOOK_S, LOOK_S_MAX = 0.02, 1.0
PATIENCE_LOOKS = 8
"""Attempts, with growing pauses, after which the wait is logged."""
HEADER_BYTES_MAX = 40
"""Size of a WAL page header. The position where the next record will begin is after one, and the
end of the last record may be before it."""

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
LOCK = "LOCK TABLE {} IN ACCESS SHARE MODE"
"""Taken before the snapshot, so that no schema change comes between the two."""

LOOK = """
SELECT pg_catalog.pg_current_snapshot()::text,
    (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text,
    pg_catalog.current_setting('wal_block_size')::int8,
    pg_catalog.age({first}::xid) + {first}::int8,
    (extract(epoch FROM pg_catalog.now()) * 1000000)::int8
"""

WRITERS = """
SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted
    AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
        'AccessExclusiveLock')
    AND l.database = (SELECT oid FROM pg_catalog.pg_database
        WHERE datname = pg_catalog.current_database())
    AND l.relation = ANY({relations}::oid[])
"""
"""Each transaction holds a lock on tables that it has written to until other sessions see it."""

FLUSH = """
SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery()
    THEN pg_catalog.pg_logical_emit_message(true, {}, '') END
"""
"""An empty message, which is not an event; its commit flushes the WAL. A standby streams all that
it has by itself."""
REFUSED = {"25006", "42501"}
"""Writing is not possible at the moment, or our role may not write."""


@dataclass(frozen=True, slots=True)
class SnapshotTransaction:
    """The snapshot of a transaction, and its time."""

    snapshot: PgSnapshot
    awaits: int
    """Once the stream is here, everything that the snapshot sees was streamed."""
    next_xid: int
    moment: SnapshotPoint

    def condition_since(self, earlier: PgSnapshot) -> str:
        """Returns an SQL condition of rows created after an earlier snapshot, which come by the
        stream; empty if that is unknown because transaction ids have wrapped around."""
        if not self.snapshot.is_of_first_epoch:
            return ""
        conditions = [f"pg_catalog.age(xmin) <= {self.next_xid - earlier.xmax}"]
        if earlier.running:
            listed = ",".join(map(str, sorted(earlier.running)))
            conditions.append(f"xmin = ANY('{{{listed}}}'::xid[])")
        return " OR ".join(conditions)


@asynccontextmanager
async def viewing(
    connection: PgConnection, tables: Sequence[TableId]
) -> AsyncIterator[SnapshotTransaction]:
    """Yields a transaction that reads, and locks the table's schema."""
    with in_our_words("the tables cannot be looked at"):
        await connection.execute(BEGIN)
        if tables:
            names = sql.SQL(", ").join(
                sql.SQL("ONLY {}").format(sql.Identifier(*table)) for table in tables
            )
            await connection.execute(sql.SQL(LOCK).format(names))
        first = sql.Literal(str(FIRST_NORMAL_XID))
        cursor = await connection.execute(sql.SQL(LOOK).format(first=first))
        row = await cursor.fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    text, place, block_bytes, next_xid, at_us = row
    snapshot, lsn = PgSnapshot.parse(text), parse_lsn(place)
    if lsn % block_bytes <= HEADER_BYTES_MAX:
        lsn -= lsn % block_bytes
    yield SnapshotTransaction(
        snapshot, lsn, next_xid, SnapshotPoint(lsn, snapshot.xmax % EPOCH, at_us)
    )
    with in_our_words("the reading cannot be ended"):
        await connection.execute("COMMIT")


async def writers_over(connection: PgConnection, table: TableId, relations: Sequence[int]) -> None:
    """Waits for all running transactions that have written to the table.

    Changes from before the table was published are never streamed, so rows must be read after these
    transactions; changes that were streamed already are then visible.
    """
    query = sql.SQL(WRITERS).format(relations=sql.Literal(list(relations)))
    wanted = await _writers(connection, query)
    pause_s, looks = LOOK_S, 0
    while wanted:
        await asyncio.sleep(pause_s)
        pause_s, looks = min(pause_s * 2, LOOK_S_MAX), looks + 1
        wanted &= await _writers(connection, query)
        if looks == PATIENCE_LOOKS and wanted:
            logger.info(
                "the rows of %s are read as soon as %d transactions end that write to it",
                table,
                len(wanted),
            )


async def flush(connection: PgConnection, *, prefix: str = PREFIX) -> bool:
    """Makes an idle server flush its WAL, because it streams nothing else. Returns False if that is
    not allowed; the server then does it within half a minute."""
    try:
        await connection.execute(sql.SQL(FLUSH).format(sql.Literal(prefix)))
    except psycopg.errors.Error as error:
        if error.sqlstate in REFUSED:
            return False
        raise to_headwater_error(error, "the server's log cannot be written out") from None
    return True


async def _writers(connection: PgConnection, query: sql.Composed) -> set[str]:
    with in_our_words("the server does not show who writes"):
        return {row[0] for row in await (await connection.execute(query)).fetchall()}
