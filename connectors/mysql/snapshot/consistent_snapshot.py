"""Reads all tables at one position, beside a running pipeline."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from threading import Event
from typing import NamedTuple

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.transport import BinlogTransport, DumpStart
from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.kernels.kernels import chosen_kernels
from headwater.connectors.mysql.position import STREAM, BinlogPosition, stored_position
from headwater.connectors.mysql.resume_check import check_requirements
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable
from headwater.connectors.mysql.server.connection import (
    MysqlConnection,
    connect,
    in_our_words,
)
from headwater.connectors.mysql.server.gtid_set import MariadbGtids
from headwater.connectors.mysql.server.server_identity import (
    FilePosition,
    MysqlServer,
    MysqlSnapshotPoint,
    identify,
)
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.chunk_reader import (
    ISOLATION,
    MARIADB_SNAPSHOT,
    PAUSE_S,
    SNAPSHOT,
    TRIES_MAX,
    batch_of,
    binlog_snapshot,
    read_changes,
    shows_all_logged,
    whole_query,
)
from headwater.connectors.source import SourceContext, SourceSnapshot
from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.core_log.model.changes import Positions, TableChanges
from headwater.core_log.model.table_schema import TableId

EVENTS_BYTES_MAX = 2 << 20
HEARTBEAT_S = 1.0
ANONYMOUS_SERVER_ID = 0
"""A reader with it ends no other one."""


@asynccontextmanager
async def consistent_snapshot(
    settings: MysqlSettings, context: SourceContext, reached: Positions
) -> AsyncIterator[SourceSnapshot]:
    """Yields a snapshot of all tables at one position, of the kind that was reached."""
    name = f"headwater {context.pipeline} look"
    connection = await asyncio.to_thread(connect, settings, name=name)
    stopped = Event()
    try:
        server = await asyncio.to_thread(identify, connection)
        await asyncio.to_thread(check_requirements, connection, server)
        catalog = MysqlCatalog(settings, server.is_mariadb)
        tables = {each.table: each for each in await asyncio.to_thread(catalog.tables, connection)}
        stored = stored_position(reached, is_mariadb=server.is_mariadb)
        has_gtids = server.has_gtids and (stored is None or stored.gtids is not None)
        begin = partial(begin_exact_snapshot, connection, server, stopped, has_gtids=has_gtids)
        beginning = asyncio.ensure_future(asyncio.to_thread(begin))
        try:
            snapshot = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            stopped.set()
            await wait_for_end(beginning)
            raise
        position, origin = snapshot.position, MysqlOrigin(context.pipeline, server.name)

        async def rows(table: TableId) -> AsyncIterator[TableChanges]:
            captured = tables[table]
            selected = _Selected(connection, captured, snapshot.point, origin)
            while (changes := await asyncio.to_thread(selected.next)) is not None:
                yield changes

        def changed_since(after: BinlogPosition) -> bool:
            other = connect(settings, name=name)
            try:
                return has_changes_between(other, server, catalog, tables, after, position.place)
            finally:
                other.close()

        async def has_changes_since(reached: Positions) -> bool | None:
            after = stored_position(reached, is_mariadb=server.is_mariadb)
            return True if after is None else await asyncio.to_thread(changed_since, after)

        yield SourceSnapshot(
            {STREAM: position.text} if position.text else {},
            rows,
            has_left=lambda table: table not in tables,
            tables={table: each.problem for table, each in tables.items()},
            has_changes_since=has_changes_since,
            columns=lambda table: tables[table].schema.names if table in tables else None,
        )
    finally:
        stopped.set()
        connection.close()


def has_changes_between(
    connection: MysqlConnection,
    server: MysqlServer,
    catalog: MysqlCatalog,
    tables: Mapping[TableId, MysqlTable],
    after: BinlogPosition,
    before: FilePosition,
) -> bool:
    """Uses the connection up."""
    reader = BinlogGroupReader(
        MysqlOrigin("", server.name),
        after.copy(),
        tables,
        catalog.captures,
        catalog.charsets(connection),
        server.is_mariadb,
        folds_names=server.folds_names,
    )
    decoder = BinlogDecoder(
        server.is_mariadb, has_checksum=server.checksum.upper() == "CRC32", wants=reader.wants
    )
    transport = BinlogTransport(connection)
    gtids = after.gtids if after.gtids or not server.is_mariadb else None
    start = DumpStart(after.place, gtids, waits=False)
    transport.start(server, start, server_id=ANONYMOUS_SERVER_ID, heartbeat_s=HEARTBEAT_S)
    while events := transport.wait_for_events(EVENTS_BYTES_MAX):
        for event in events:
            for decoded in decoder.decode(event):
                if not reader.is_open and reader.position.place.order >= before.order:
                    return False
                reader.feed(decoded)
                has_decided = not reader.add_decided()
                if has_decided or reader.has_rows or reader.suspects or reader.prepared:
                    return True
    return False


class _Selected:
    """The rows of one table, some at a time."""

    def __init__(
        self,
        connection: MysqlConnection,
        table: MysqlTable,
        point: MysqlSnapshotPoint,
        origin: MysqlOrigin,
    ) -> None:
        self._table, self._point, self._origin = table, point, origin
        self._kernels = chosen_kernels()
        self._blocks = connection.blocks(whole_query(table), self._kernels)

    def next(self) -> TableChanges | None:
        with in_our_words("the rows cannot be read", table=str(self._table.table)):
            block = next(self._blocks, None)
        if block is None:
            return None
        cells = block.columns(len(self._table.plans), self._kernels)
        return read_changes(
            self._origin,
            self._table,
            batch_of(self._table, cells),
            self._point,
            "false",
        )


class ExactSnapshot(NamedTuple):
    """An open transaction."""

    position: BinlogPosition
    """All that it shows is before it, and nothing behind it."""
    at_us: int
    """By the clock of the server."""

    @property
    def point(self) -> MysqlSnapshotPoint:
        return MysqlSnapshotPoint(self.position.place, self.at_us)


def begin_exact_snapshot(
    connection: MysqlConnection, server: MysqlServer, stopped: Event, *, has_gtids: bool
) -> ExactSnapshot:
    """Begins a transaction, and returns the position up to which it shows everything.

    MySQL does not say the position of a snapshot. We know it if the binary log did not grow while
    the transaction began, and if nothing that was logged before was still to become visible. On a
    busy server this is tried until it holds.
    """
    with in_our_words("the snapshot cannot be read"):
        for _ in range(TRIES_MAX):
            found = try_exact_snapshot(connection, server)
            if found is not None:
                position = found.position if has_gtids else BinlogPosition(None, found.point.place)
                return found._replace(position=position)
            connection.execute("ROLLBACK")
            if stopped.wait(PAUSE_S):
                break
    raise SourceUnavailable(
        "the position of a snapshot cannot be known: the server commits without a pause",
        hint="try again when it is less busy",
    )


def try_exact_snapshot(connection: MysqlConnection, server: MysqlServer) -> ExactSnapshot | None:
    """Begins a transaction; returns None if it may show more or less than the position says."""
    connection.execute(ISOLATION)
    at_us = server.now_us(connection)
    found = _of_mariadb(connection) if server.is_mariadb else _of_mysql(connection, server)
    return None if found is None else ExactSnapshot(found, at_us)


def _of_mariadb(connection: MysqlConnection) -> BinlogPosition:
    connection.execute(MARIADB_SNAPSHOT)
    place = binlog_snapshot(connection)
    text = connection.value(f"SELECT binlog_gtid_pos('{place.file}', {place.position})")
    return BinlogPosition(MariadbGtids.parse(str(text or "")), place)


def _of_mysql(connection: MysqlConnection, server: MysqlServer) -> BinlogPosition | None:
    end = server.log_end(connection)
    if not shows_all_logged(connection):
        return None
    executed = server.executed_gtids(connection)
    connection.execute(SNAPSHOT)
    if server.log_end(connection) != end:
        return None
    return BinlogPosition(executed, end)
