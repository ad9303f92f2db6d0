"""Tables and their changes in few words, and what a mirror of them would hold in the end."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

Row = dict[str, Any]

READ, INSERT, UPDATE, DELETE, TRUNCATE, REREAD = Operation
PARTITION = TopicPartition("shop.public.orders", 0)

ORDERS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "status": pa.string(),
    "total": pa.decimal128(10, 2),
    "created_at": pa.timestamp("us"),
}


def schema_of(
    columns: Mapping[str, pa.DataType] = ORDERS,
    *,
    table: str = "public.orders",
    key: Sequence[str] = ("id",),
) -> TableSchema:
    namespace, _, name = table.rpartition(".")
    return TableSchema(
        TableId(namespace, name), tuple(Column(*each) for each in columns.items()), tuple(key)
    )


def changes_of(
    schema: TableSchema,
    *given: tuple[Operation, Row],
    before: Sequence[Row | None] | None = None,
    first_offset: int | None = None,
) -> TableChanges:
    rows = [row for _, row in given]
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_pylist(rows, schema=schema.arrow),
        operations=pa.array([int(operation) for operation, _ in given], pa.uint8()),
        source=source_times(0),
        before=None if before is None else pa.array(before, pa.struct(list(schema.arrow))),
        log_partition=None if first_offset is None else PARTITION,
        log_offsets=None
        if first_offset is None
        else pa.array(range(first_offset, first_offset + len(rows)), pa.int64()),
    )


def told(changes: TableChanges) -> list[tuple[Operation, Row]]:
    """Operations and rows, as they were given to `changes_of`."""
    operations = map(Operation, changes.operations.to_pylist())
    return list(zip(operations, changes.rows.to_pylist(), strict=True))


def only(found: Sequence[TableChanges]) -> TableChanges:
    [one] = found
    return one


def mirror(
    stretches: Iterable[TableChanges], held: dict[tuple[Any, ...], Row] | None = None
) -> dict[tuple[Any, ...], Row]:
    """The newest row of every key, one change after the other: slow and obvious."""
    held = {} if held is None else dict(held)
    for changes in stretches:
        for operation, row in told(changes):
            key = tuple(row[name] for name in changes.schema.key)
            if operation is TRUNCATE:
                held = {}
            elif operation is DELETE:
                held.pop(key, None)
            else:
                held[key] = row
    return held
