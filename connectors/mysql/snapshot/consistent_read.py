"""Reads all tables at one position, beside a running pipeline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event

from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.position import BinlogPosition, stored_position
from headwater.connectors.mysql.resume_check import NOWHERE
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable
from headwater.connectors.mysql.server.connection import MysqlConnection, connect, in_our_words
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.server.server_identity import FilePosition, identify
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.chunk_query import whole_query
from headwater.connectors.mysql.snapshot.chunk_reader import begin_snapshot, columns_of
from headwater.connectors.mysql.snapshot.rows_beside_stream import read_changes
from headwater.connectors.source import SourceContext, SourceSnapshot
from headwater.core_log.model.changes import Positions, TableChanges
from headwater.core_log.model.table_schema import TableId

ROWS_MAX = 20_000


@asynccontextmanager
async def standing_still(
    settings: MysqlSettings, context: SourceContext, reached: Positions
) -> AsyncIterator[SourceSnapshot]:
    """Yields a snapshot of about the present: without a lock, a server does not say at which
    position its snapshot is."""
    connection = await asyncio.to_thread(
        connect, settings, name=f"headwater {context.pipeline} look"
    )
    stopped = Event()
    try:
        server = await asyncio.to_thread(identify, connection)
        none = MariadbGtids() if server.is_mariadb else GtidSet()
        stored = stored_position(reached, is_mariadb=server.is_mariadb)
        shows = stored or BinlogPosition(none, NOWHERE)
        catalog = MysqlCatalog(settings, server.is_mariadb)
        tables = {each.table: each for each in await asyncio.to_thread(catalog.tables, connection)}
        with in_our_words("the snapshot cannot be read"):
            place = await asyncio.to_thread(begin_snapshot, connection, server, shows, stopped)
        origin = MysqlOrigin(context.pipeline, server.name)
        now_ms = context.clock.now_ms()

        async def rows(table: TableId) -> AsyncIterator[TableChanges]:
            captured = tables[table]
            selected = _Selected(connection, captured, place, origin, now_ms)
            while (changes := await asyncio.to_thread(selected.next)) is not None:
                yield changes

        yield SourceSnapshot({}, rows, has_left=lambda table: table not in tables)
    finally:
        stopped.set()
        connection.close()


class _Selected:
    """The rows of one table, some at a time."""

    def __init__(
        self,
        connection: MysqlConnection,
        table: MysqlTable,
        place: FilePosition,
        origin: MysqlOrigin,
        now_ms: int,
    ) -> None:
        self._table, self._place, self._origin, self._now_ms = table, place, origin, now_ms
        self._rows = connection.select(whole_query(table))

    def next(self) -> TableChanges | None:
        with in_our_words("the rows cannot be read", table=str(self._table.table)):
            some = [row for _, row in zip(range(ROWS_MAX), self._rows, strict=False)]
        if not some:
            return None
        return read_changes(
            self._origin,
            self._table,
            columns_of(self._table, some),
            self._place,
            "false",
            now_ms=self._now_ms,
        )
