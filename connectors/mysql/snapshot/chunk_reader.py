"""Reads chunks of rows in snapshots that show all up to a stream position, as changes."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.kernels.kernels import MysqlKernels, chosen_kernels
from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import (
    MysqlCatalog,
    MysqlTable,
    identifier,
    rows_of,
    text_literal,
)
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
from headwater.connectors.mysql.types.column_definition import ColumnDefinition, text_decoder
from headwater.connectors.mysql.types.column_plan import inet6_text
from headwater.core_log.foundation.errors import DecodeError, SourceRejected, SourceUnavailable
from headwater.core_log.model.changes import (
    Operation,
    Phase,
    Replacement,
    TableChanges,
    source_times,
)

SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
MARIADB_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
BINLOG_SNAPSHOT = "SHOW STATUS LIKE 'binlog_snapshot_%'"
PATIENCE_S = 0.005
PAUSE_S, TRIES_MAX = 0.002, 5_000
OWNED = "SELECT @@global.gtid_owned"
ANONYMOUS = "SHOW GLOBAL STATUS LIKE 'Ongoing_anonymous_transaction_count'"
"""MySQL counts transactions without a GTID from before they are logged until they are visible."""

NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double",
           "year"}  # fmt: skip
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
BY_NUMBER = {"bit", "enum", "set"}
"""Types that are ordered by a number, which is compared."""


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
        for block in connection.blocks(_bound_query(table, after, rows=rows), kernels):
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
        last = _key_cells(table, [column[-1].as_py() for column in cells])
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


def chunk_query(
    table: MysqlTable,
    after: Sequence[bytes] | None,
    upto: Sequence[bytes] | None = None,
    *,
    rows: int,
) -> str:
    """Returns the SELECT; `after` and `upto` have the key's cells of the row before the first, and
    of the last one. Without `upto` it has so many rows."""
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in table.plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    where, order = _range(table, after, upto)
    limit = f" LIMIT {rows}" if upto is None else ""
    return f"SELECT {asked} FROM {name}{where} ORDER BY {order}{limit}"


def _bound_query(table: MysqlTable, after: Sequence[bytes] | None, *, rows: int) -> str:
    """Returns the SELECT of the key of the last row of a chunk, of which there may be none."""
    plans = [plan for column in table.schema.key for plan in table.plans
             if plan.column.name == column]  # fmt: skip
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    where, order = _range(table, after, None)
    return f"SELECT {asked} FROM {name}{where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"


def _range(
    table: MysqlTable, after: Sequence[bytes] | None, upto: Sequence[bytes] | None
) -> tuple[str, str]:
    """Returns the condition, and the columns to order by."""
    key = [_definition(table, column) for column in table.schema.key]
    bounds = [
        _beyond(key, cells, sign)
        for cells, sign in ((after, ">"), (upto, "<"))
        if cells is not None
    ]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return where, ", ".join(map(_ordered, key))


def whole_query(table: MysqlTable) -> str:
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in table.plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    return f"SELECT {asked} FROM {name}"


def _key_cells(table: MysqlTable, row: Sequence[bytes | None]) -> tuple[bytes, ...]:
    names = table.schema.names
    cells = [row[names.index(column)] for column in table.schema.key]
    return tuple(b"" if cell is None else cell for cell in cells)


def _definition(table: MysqlTable, column: str) -> ColumnDefinition:
    return next(each for each in table.definitions if each.name == column)


def _ordered(definition: ColumnDefinition) -> str:
    name = identifier(definition.name)
    return f"CAST({name} AS UNSIGNED)" if definition.data_type in BY_NUMBER else name


def _beyond(key: Sequence[ColumnDefinition], cells: Sequence[bytes], sign: str) -> str:
    """Returns the comparison of rows, written out: older servers use no index for the short form.
    The row itself is among those up to it, and not among those after it."""
    if len(cells) != len(key):
        raise DecodeError("the progress of a snapshot has another key than its table")
    columns, literals = list(map(_ordered, key)), list(map(_literal, key, cells))
    last = len(key) - 1
    parts = []
    for at in range(len(key)):
        same = [f"{columns[before]} = {literals[before]}" for before in range(at)]
        compare = "<=" if at == last and sign == "<" else sign
        parts.append(" AND ".join([*same, f"{columns[at]} {compare} {literals[at]}"]))
    first = f"{columns[0]} {sign}= {literals[0]} AND " if last else ""
    return f"{first}({' OR '.join(f'({part})' for part in parts)})"


def _literal(definition: ColumnDefinition, cell: bytes) -> str:
    kind = definition.data_type
    if kind in NUMBERS:
        if not NUMBER.fullmatch(cell):
            raise DecodeError("a cell of a key is no number")
        return cell.decode()
    if kind == "bit":
        return str(int.from_bytes(cell, "big"))
    if kind in ("enum", "set"):
        return str(_label_number(definition, cell))
    if kind in TEXTS:
        return f"_{definition.charset} X'{cell.hex()}'"
    if kind in BYTES:
        return f"X'{cell.hex()}'"
    if kind == "inet6":
        return text_literal(inet6_text(cell))
    return text_literal(cell.decode("ascii"))


def _label_number(definition: ColumnDefinition, cell: bytes) -> int:
    text = text_decoder(definition.charset, column=definition.name)(cell)
    if definition.data_type == "enum":
        return definition.labels.index(text) + 1 if text in definition.labels else 0
    chosen = set(filter(None, text.split(",")))
    return sum(1 << at for at, label in enumerate(definition.labels) if label in chosen)


def read_changes(
    origin: MysqlOrigin,
    table: MysqlTable,
    rows: pa.RecordBatch,
    point: MysqlSnapshotPoint,
    kind: str,
) -> TableChanges:
    """Returns rows of a snapshot as changes."""
    return TableChanges(
        schema=table.schema,
        rows=rows,
        operations=pa.array(np.full(rows.num_rows, Operation.READ, np.uint8)),
        source=origin.block(
            table.table,
            source_times(point.at_us),
            snapshot=kind,
            file=point.place.file,
            position=point.place.position,
        ),
        commits=str(point.place),
    )


def completion_of(origin: MysqlOrigin, table: MysqlTable, point: MysqlSnapshotPoint) -> Replacement:
    """Returns the end of a re-read, with what the deletes of missing rows say."""
    source = origin.block(
        table.table,
        source_times(point.at_us),
        snapshot="incremental",
        file=point.place.file,
        position=point.place.position,
    )
    return Replacement(table.schema, Phase.COMPLETE, commit=str(point.place), source=source)
