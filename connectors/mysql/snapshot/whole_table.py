"""Reads a table without a key as a whole, at a position at which the stream waits for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.kernels.kernels import chosen_kernels
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable, identifier
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.server_identity import MysqlServer, MysqlSnapshotPoint
from headwater.connectors.mysql.server.text_rows import TextRows
from headwater.connectors.mysql.snapshot.chunk_reader import (
    FormChanged,
    batch_of,
    read_changes,
    whole_query,
)
from headwater.connectors.mysql.snapshot.consistent_snapshot import try_exact_snapshot
from headwater.core_log.model.changes import Operation, TableChanges


@dataclass(slots=True)
class KeylessTableRows:
    """Rows of an open snapshot. Rows without a key cannot be matched with the stream, so it goes on
    once the log has all of them."""

    table: MysqlTable
    connection: MysqlConnection
    point: MysqlSnapshotPoint
    """Everything before its place is in the rows, and nothing behind it."""
    blocks: Iterator[TextRows]
    closes: bool = True
    """Whether the connection is of no use afterwards."""
    is_drained: bool = False

    def next(self) -> pa.RecordBatch | None:
        kernels = chosen_kernels()
        with in_our_words("the rows cannot be read", table=str(self.table.table)):
            block = next(self.blocks, None)
        if block is None:
            self.is_drained = True
            return None
        return batch_of(self.table, block.columns(len(self.table.plans), kernels))

    def close(self) -> None:
        if self.closes:
            self.connection.close()


def begin_whole_table(
    connection: MysqlConnection,
    server: MysqlServer,
    catalog: MysqlCatalog,
    table: MysqlTable,
    begun_at: MysqlSnapshotPoint | None = None,
) -> KeylessTableRows | None:
    """`begun_at`: the point of a transaction that is open, and stays so. Returns None if the
    position of this snapshot is not known: try again. Raises `FormChanged` if the table has another
    form: until the end of its rows nobody can change it."""
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    with in_our_words("the rows cannot be read", table=str(table.table)):
        point = begun_at
        if point is None:
            snapshot = try_exact_snapshot(connection, server)
            if snapshot is None:
                connection.execute("ROLLBACK")
                return None
            point = snapshot.point
        connection.execute(f"SELECT 1 FROM {name} LIMIT 1")
        now = catalog.table(connection, table.table)
    if now is None or not now.has_form_of(table):
        raise FormChanged
    blocks = connection.blocks(whole_query(table), chosen_kernels())
    return KeylessTableRows(table, connection, point, blocks, closes=begun_at is None)


def truncation_before_rows(
    table: MysqlTable, origin: MysqlOrigin, point: MysqlSnapshotPoint, kind: str
) -> TableChanges:
    """Returns the truncate before the rows: what was streamed meanwhile is among them."""
    schema = table.schema.arrow
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
    changes = read_changes(origin, table, nothing, point, kind)
    return replace(changes, operations=pa.array([Operation.TRUNCATE], pa.uint8()))
