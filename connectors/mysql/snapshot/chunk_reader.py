"""Reads one chunk of rows in a snapshot that shows everything up to a position of the stream."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import pyarrow as pa

from headwater.connectors.mysql.kernels.kernels import MysqlKernels
from headwater.connectors.mysql.kernels.selection import chosen_kernels
from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable, rows_of
from headwater.connectors.mysql.server.connection import (
    DEFINITION_CHANGED,
    MysqlConnection,
    code_of,
    in_our_words,
)
from headwater.connectors.mysql.server.gtid_set import GtidSet
from headwater.connectors.mysql.server.server_identity import (
    FilePosition,
    MysqlServer,
    MysqlSnapshotPoint,
    identify,
)
from headwater.connectors.mysql.server.text_rows import TextRows
from headwater.connectors.mysql.snapshot.chunk_query import (
    bound_query,
    chunk_query,
    key_cells,
)
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable

SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
MARIADB_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
BINLOG_SNAPSHOT = "SHOW STATUS LIKE 'binlog_snapshot_%'"
PATIENCE_S = 0.005
PAUSE_S, TRIES_MAX = 0.002, 5_000
OWNED = "SELECT @@global.gtid_owned"
ANONYMOUS = "SHOW GLOBAL STATUS LIKE 'Ongoing_anonymous_transaction_count'"
"""MySQL counts transactions without a GTID from before they are logged until they are visible."""


class FormChanged(Exception):
    """The table has another form than expected, or is gone."""


@dataclass(frozen=True, slots=True)
class MysqlChunk:
    """Rows as of a snapshot, which can be emitted once the stream has come to its place."""

    rows: pa.RecordBatch
    last: tuple[bytes, ...] | None
    """The key's cells of its last row."""
    is_last: bool
    point: MysqlSnapshotPoint


def begin_snapshot(
    connection: MysqlConnection,
    server: MysqlServer,
    shows: BinlogPosition,
    stopped: Event,
) -> MysqlSnapshotPoint:
    """Begins a transaction that shows all groups of a position; returns its time, and where the
    binary log ended after it had begun. A server may stream a commit before it shows it."""
    connection.execute(ISOLATION)
    while not stopped.is_set():
        at_us = server.now_us(connection)
        if server.is_mariadb:
            connection.execute(MARIADB_SNAPSHOT)
            place = binlog_snapshot(connection)
            if place.order >= shows.place.order:
                return MysqlSnapshotPoint(place, at_us)
            connection.execute("ROLLBACK")
        else:
            if _is_shown(connection, server, shows):
                connection.execute(SNAPSHOT)
                return MysqlSnapshotPoint(server.log_end(connection), at_us)
        stopped.wait(PATIENCE_S)
    raise SourceUnavailable("the reading of rows was stopped")


def _is_shown(connection: MysqlConnection, server: MysqlServer, shows: BinlogPosition) -> bool:
    if shows.gtids is None:
        return shows_all_logged(connection)
    executed = server.executed_gtids(connection)
    assert isinstance(executed, GtidSet) and isinstance(shows.gtids, GtidSet), "MySQL's"
    return shows.gtids.is_within(executed)


def binlog_snapshot(connection: MysqlConnection) -> FilePosition:
    """Returns the exact place of MariaDB's consistent snapshot."""
    said = {str(name).lower(): value for name, value in connection.rows(BINLOG_SNAPSHOT)}
    return FilePosition(
        str(said["binlog_snapshot_file"]), int(said["binlog_snapshot_position"] or 0)
    )


def read_chunk(
    connection: MysqlConnection,
    server: MysqlServer,
    catalog: MysqlCatalog,
    table: MysqlTable,
    *,
    after: Sequence[bytes] | None,
    upto: Sequence[bytes] | None,
    rows_max: int,
    shows: BinlogPosition,
    stopped: Event,
    begun_at: MysqlSnapshotPoint | None = None,
) -> MysqlChunk:
    """Raises `FormChanged` if the table has another form: until the transaction ends, nobody can
    change it. `begun_at`: the point of a transaction that is open, and stays so."""
    kernels = chosen_kernels()
    with in_our_words("the rows cannot be read", table=str(table.table)):
        point = begun_at or begin_snapshot(connection, server, shows, stopped)
        try:
            with _form_is_checked():
                blocks = connection.blocks(chunk_query(table, after, upto, rows=rows_max), kernels)
                try:
                    found, last = read_blocks(table, blocks, kernels)
                except SourceRejected:  # the values may be of another form
                    deque(blocks, maxlen=0)
                    _check_form(connection, catalog, table)
                    raise
            _check_form(connection, catalog, table)
        finally:
            if begun_at is None:
                connection.execute("ROLLBACK")
    if upto is not None:
        return MysqlChunk(found, tuple(upto), is_last=False, point=point)
    return MysqlChunk(found, last, found.num_rows < rows_max, point)


def _check_form(connection: MysqlConnection, catalog: MysqlCatalog, table: MysqlTable) -> None:
    now = catalog.table(connection, table.table)
    if now is None or not now.has_form_of(table):
        raise FormChanged


def read_bound(
    connection: MysqlConnection, table: MysqlTable, *, after: Sequence[bytes] | None, rows: int
) -> tuple[bytes, ...] | None:
    """Returns the key's cells of the last row of a chunk; None if there are fewer rows. Any bound
    is right, whatever is committed meanwhile."""
    kernels = chosen_kernels()
    with in_our_words("the rows cannot be read", table=str(table.table)), _form_is_checked():
        last = None
        for block in connection.blocks(bound_query(table, after, rows=rows), kernels):
            cells = [column[-1].as_py() for column in block.columns(len(table.schema.key), kernels)]
            last = tuple(b"" if cell is None else cell for cell in cells)
    return last


GONE = (1146, 1054)
"""Unknown table, unknown column."""


@contextmanager
def _form_is_checked() -> Iterator[None]:
    import pymysql

    try:
        yield
    except pymysql.MySQLError as error:
        if code_of(error)[0] in (DEFINITION_CHANGED, *GONE):
            raise FormChanged from None
        raise


def read_blocks(
    table: MysqlTable, blocks: Iterable[TextRows], kernels: MysqlKernels
) -> tuple[pa.RecordBatch, tuple[bytes, ...] | None]:
    """Returns all rows, and the key's cells of the last one."""
    batches, last = list[pa.RecordBatch](), None
    for block in blocks:
        cells = block.columns(len(table.plans), kernels)
        batches.append(batch_of(table, cells))
        last = key_cells(table, [column[-1].as_py() for column in cells])
    schema = table.schema.arrow
    if not batches:
        nothing = [pa.nulls(0, each.type) for each in schema]
        return pa.RecordBatch.from_arrays(nothing, schema=schema), None
    [whole] = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole, last


def batch_of(table: MysqlTable, cells: Sequence[pa.BinaryArray]) -> pa.RecordBatch:
    columns = [plan.text_column(each) for plan, each in zip(table.plans, cells, strict=True)]
    return rows_of(table, columns)


def connect_to_same(connect: Callable[[], MysqlConnection], server: MysqlServer) -> MysqlConnection:
    """Returns a connection to the server of the stream: places of another one mean nothing."""
    connection = connect()
    try:
        other = identify(connection).identity
    except BaseException:
        connection.close()
        raise
    if other != server.identity:
        connection.close()
        raise SourceUnavailable("the connection for rows came to another server than the stream")
    return connection


def shows_all_logged(connection: MysqlConnection) -> bool:
    """Whether nothing that is in the log of MySQL is still to become visible."""
    if connection.value(OWNED):
        return False
    [(_, count)] = connection.rows(ANONYMOUS)
    return int(count) == 0


def visible_end(connection: MysqlConnection, server: MysqlServer) -> FilePosition:
    """Returns a place of the log before which everything is visible."""
    end, never = server.log_end(connection), Event()
    for _ in range(TRIES_MAX):
        if shows_all_logged(connection):
            return end
        never.wait(PAUSE_S)
    raise SourceUnavailable(
        "the position of a snapshot cannot be known: the server commits without a pause",
        hint="try again when it is less busy, or set gtid_mode = ON",
    )
