"""All tables at one position of the write-ahead log, beside a running pipeline."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import psycopg
import pyarrow as pa
from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.events.event_metadata import SourceOrigin
from headwater.connectors.postgres.publication.published_tables import publication_name
from headwater.connectors.postgres.server.connection import (
    PgConnection,
    connect,
    in_our_words,
    quote,
)
from headwater.connectors.postgres.server.lsn import EPOCH, lsn_text, parse_lsn
from headwater.connectors.postgres.server.lsn import PgSnapshot as Seen
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot.heartbeat import ASKED_PREFIX
from headwater.connectors.postgres.slot.replication_slot import (
    WAITED_FOR_SLOT,
    once_left,
    slot_name,
    tell_meanwhile,
)
from headwater.connectors.postgres.slot.resume_check import STREAM
from headwater.connectors.postgres.snapshot.chunk_planner import (
    TableSize,
    check_unchanged,
    sizes_of,
)
from headwater.connectors.postgres.snapshot.copy import Copier
from headwater.connectors.postgres.snapshot.initial_snapshot import NOW, take_on
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, SnapshotPoint, statement_of
from headwater.connectors.postgres.snapshot.transaction import flush
from headwater.connectors.source import Remark, SourceContext, SourceSnapshot
from headwater.core_log.foundation.errors import Diagnostic
from headwater.core_log.model.changes import Positions, TableChanges
from headwater.core_log.model.table_schema import TableId

NAME_BYTES_MAX = 63
SUFFIX = "_look"
SLOT = "CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput"


@asynccontextmanager
async def consistent_snapshot(
    settings: PostgresSettings, context: SourceContext
) -> AsyncIterator[SourceSnapshot]:
    """Yields a snapshot. A temporary slot gives its position; creating it waits for running writing
    transactions."""
    async with AsyncExitStack() as stack:
        line = await connect(settings, replication=True, name=f"headwater {context.pipeline} look")
        stack.push_async_callback(line.close)
        name = slot_name(settings, context.pipeline)[: NAME_BYTES_MAX - len(SUFFIX)] + SUFFIX
        snapshot_option = (
            "(SNAPSHOT 'export')" if line.info.server_version >= 15_0000 else "EXPORT_SNAPSHOT"
        )
        command = sql.SQL(SLOT).format(sql.Identifier(name)) + sql.SQL(" " + snapshot_option)

        async def make() -> list[tuple[str, ...]]:
            with in_our_words("a temporary slot cannot be created", slot=name):
                return await (await line.execute(command)).fetchall()

        questions = await stack.enter_async_context(open_connection(settings))

        def say(finding: Diagnostic | None) -> None:
            context.report(Remark(WAITED_FOR_SLOT, finding))

        [[_, place, exported, _]] = await once_left(
            lambda: tell_meanwhile(make(), line, questions, say)
        )
        connection = await stack.enter_async_context(open_connection(settings))
        await take_on(connection, exported)
        tables, refused, _ = await look(connection, settings, context.pipeline)
        known = {each.table: "" for each in tables}
        known |= {each.table: each.problem for each in refused}
        with in_our_words("the snapshot cannot be read"):
            [[seen, at_us]] = await (await connection.execute(NOW)).fetchall()
        sizes = await sizes_of(connection, [table.oid for table in tables])
        async with open_connection(settings) as other:
            await flush(other, prefix=ASKED_PREFIX)  # the reader of the stream soon connects
        reader = RowMapper(settings, context, SourceOrigin(context.pipeline, line.info.dbname))
        lsn = parse_lsn(place)
        copier = reader.copier(connection, is_only_for_copies=True)
        stack.callback(copier.close)
        moment = SnapshotPoint(lsn, Seen.parse(seen).xmax % EPOCH, at_us)
        still = _Still(reader, copier, questions, moment, tables, sizes)

        async def has_changes_since(reached: Positions) -> bool | None:
            if STREAM not in reached:
                return True
            after = parse_lsn(reached[STREAM])
            slot = slot_name(settings, context.pipeline)
            publication = publication_name(settings, context.pipeline)
            async with open_connection(settings) as other:
                return await holds_changes(other, slot, publication, after=after, before=lsn)

        yield SourceSnapshot(
            {STREAM: lsn_text(lsn)},
            still.rows,
            has_left=lambda table: table not in known,
            tables=known,
            has_changes_since=has_changes_since,
            rejected=lambda table: still.rejected.get(table, ()),
            columns=still.columns,
        )


class _Still:
    """Reads one table after another over one connection."""

    def __init__(
        self,
        reader: RowMapper,
        copier: Copier,
        questions: PgConnection,
        moment: SnapshotPoint,
        tables: list[CapturedTable],
        sizes: list[TableSize],
    ) -> None:
        self._reader, self._copier, self._moment = reader, copier, moment
        self._questions = questions
        self._tables = {table.table: table for table in tables}
        self._sizes = sizes
        self.rejected: dict[TableId, list[TableChanges]] = {}
        self._turn = asyncio.Lock()

    def columns(self, table: TableId) -> Sequence[str] | None:
        captured = self._tables.get(table)
        return None if captured is None else captured.schema.names

    async def rows(self, table: TableId) -> AsyncGenerator[TableChanges, None]:
        captured = self._tables.get(table)
        if captured is None:
            return
        reader, where = self._reader, self._reader.where_of(captured)
        async with self._turn:
            lost: list[pa.RecordBatch] = []
            for size in self._sizes:
                if size.root != captured.oid:
                    continue
                statement = statement_of(captured, size, (0, size.leaf.pages), where=where)
                copied = reader.pieces(self._copier, captured, statement, lost.append)
                async with aclosing(copied) as pieces:
                    rows = await anext(pieces, None)
                    await check_unchanged(self._questions, captured, size.leaf)
                    while rows is not None:
                        yield reader.changes(captured, rows, self._moment, snapshot="true")
                        rows = await anext(pieces, None)
            self.rejected[table] = [
                reader.changes(captured, keys, self._moment, snapshot="true") for keys in lost
            ]


MESSAGES_MAX = 10_000
ROW_MESSAGES = tuple(b"IUDT")

PEEK = sql.SQL("""
SELECT coalesce(sum(messages), 0) >= {most} OR coalesce(bool_or(has_rows AND last > {after}), false)
FROM (
    SELECT count(*) AS messages, max(lsn) AS last,
        bool_or(pg_catalog.get_byte(data, 0) = ANY({rows})) AS has_rows
    FROM pg_catalog.pg_logical_slot_peek_binary_changes({slot}, {before}, {most},
        'proto_version', '1', 'publication_names', {publication})
    GROUP BY xid::text
) AS transactions
""")


async def holds_changes(
    connection: PgConnection, slot: str, publication: str, *, after: int, before: int
) -> bool | None:
    """Returns whether there are changes in transactions that end after `after`; too many to check
    count as some. Returns None while a reader uses the slot."""
    statement = PEEK.format(
        slot=sql.Literal(slot),
        publication=sql.Literal(quote(publication)),
        after=sql.SQL("{}::pg_lsn").format(sql.Literal(lsn_text(after))),
        before=sql.SQL("{}::pg_lsn").format(sql.Literal(lsn_text(before))),
        most=sql.Literal(MESSAGES_MAX),
        rows=sql.Literal(list(ROW_MESSAGES)),
    )
    with in_our_words("the contents of the slot cannot be read", slot=slot):
        try:
            [[found]] = await (await connection.execute(statement)).fetchall()
        except psycopg.errors.ObjectInUse:
            return None
    return bool(found)
