"""Reading lake tables for `verify`: their rows at one version, and their offsets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.fold import CurrentRows
from headwater.sinks.object_names import IS_CURRENT, OFFSET, OP, PARTITION, TOPIC
from headwater.sinks.sink import (
    DELETED_AT,
    AppliedOffset,
    AppliedOffsets,
    DeletedRows,
    TableVersion,
)
from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.column_types import take_back
from headwater.sinks.spark.earlier_changes import orders_of, origins_of
from headwater.sinks.spark.lake_table_writer import LakeTableWriter, farthest
from headwater.sinks.spark.layout import OWN_COLUMNS, LakeTableLayout
from headwater.sinks.spark.sink_state import PassedRange
from headwater.sinks.spark.table import LakeTableState

NOT_OF_TYPE = (ValueError, pa.ArrowNotImplementedError)
LOOKED_BACK = 4
"""This many times the wanted versions are searched for offsets of partitions before."""


@dataclass(frozen=True, slots=True)
class OpenedLakeTable:
    """A version of a table; its files stay while they are read."""

    offsets: AppliedOffsets
    columns: tuple[str, ...]
    deleted: DeletedRows
    batches: Iterator[pa.RecordBatch]


def open_table(
    table_writer: LakeTableWriter,
    schema: TableSchema,
    *,
    passed: Mapping[TopicPartition, PassedRange],
    ignores_deletes: bool,
) -> OpenedLakeTable:
    state = table_writer.load()
    if state is None:
        return OpenedLakeTable({}, schema.names, DeletedRows.GONE, iter(()))
    names = tuple(name for name in schema.names if name in state.schema.names)
    offsets = {
        part: farthest(part, state.offsets, passed) or at for part, at in state.offsets.items()
    }
    layout = layout_of(state, schema.table, schema.key)
    deleted = DeletedRows.GONE
    if state.mode == "soft_delete":
        deleted = DeletedRows.MARKED
    elif state.mode == "mirror" and ignores_deletes:
        deleted = DeletedRows.STAY
    return OpenedLakeTable(
        offsets, names, deleted, _batches(table_writer, state, layout, schema, names)
    )


def versions_of(table_writer: LakeTableWriter, *, newest: int) -> list[TableVersion]:
    """Yields versions that store offsets; commits of maintenance store none."""
    state = table_writer.load()
    if state is None:
        return []
    ids = {topic: feed.topic_id for topic, feed in state.feeds.items()}
    versions = [each for each in table_writer.lake.versions(LOOKED_BACK * newest) if each.offsets]
    moved = frozenset[TopicPartition]().union(*(each.offsets for each in versions))
    held = {
        part: applied.next_offset for part, applied in state.offsets.items() if part not in moved
    }
    found = list[TableVersion]()
    for each in reversed(versions):  # a commit stores only the offsets of partitions that it moved
        held |= each.offsets
        offsets = {
            part: AppliedOffset(ids[part.topic], at)
            for part, at in held.items()
            if part.topic in ids
        }
        found.append(TableVersion(str(each.version), offsets, each.source_ms, each.positions))
    return found[: -newest - 1 : -1]


def layout_of(state: LakeTableState, table: TableId, key: tuple[str, ...]) -> LakeTableLayout:
    """Returns the layout of the table itself, independent of the present settings."""
    own = OWN_COLUMNS[state.mode]
    return LakeTableLayout(
        table,
        state.mode,
        key,
        pa.schema([field for field in state.schema if field.name not in own]),
        partition_by=state.partition_by,
    )


def _batches(
    table_writer: LakeTableWriter,
    state: LakeTableState,
    layout: LakeTableLayout,
    schema: TableSchema,
    names: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    fields = [schema.arrow.field(name) for name in names]
    found = parquet_files.stream(table_writer.place, state.files, layout)
    if state.mode == "append" and schema.key:
        found = _current_rows(table_writer, state, layout, schema)
    for batch in found:
        rows = batch
        if state.mode == "scd2":
            rows = rows.filter(rows.column(IS_CURRENT))
        if rows.num_rows:
            deleted = rows[DELETED_AT] if state.mode == "soft_delete" else None
            columns = [_column(rows[field.name], field, schema, deleted) for field in fields]
            given = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
            yield given if deleted is None else given.append_column(DELETED_AT, deleted)


def _column(
    values: pa.Array, field: pa.Field, schema: TableSchema, deleted: pa.Array | None
) -> pa.Array:
    """A deleted row may have a value of a former type, if the lake's type holds it: it is null.
    `deleted`: the rows' times of deletion, if the table keeps them."""
    try:
        return take_back(values, field.type)
    except NOT_OF_TYPE:
        if deleted is not None and field.name not in schema.key:
            is_kept = [
                time is None or _fits(value, field.type)
                for value, time in zip(_ones(values), deleted.to_pylist(), strict=True)
            ]
            values = pc.if_else(pa.array(is_kept), values, pa.scalar(None, values.type))
    try:
        return take_back(values, field.type)
    except NOT_OF_TYPE:
        raise SinkRejected(
            "a column of the target has values that are not of its type",
            table=str(schema.table),
            column=field.name,
            type=str(field.type),
            hint="another program has written to the table: headwater rebuild PIPELINE/TABLE "
            "--swap makes it again",
        ) from None


def _ones(values: pa.Array) -> Iterator[pa.Array]:
    return (values.slice(at, 1) for at in range(len(values)))


def _fits(value: pa.Array, kind: pa.DataType) -> bool:
    try:
        take_back(value, kind)
    except NOT_OF_TYPE:
        return False
    return True


def _current_rows(
    table_writer: LakeTableWriter,
    state: LakeTableState,
    layout: LakeTableLayout,
    schema: TableSchema,
) -> Iterator[pa.RecordBatch]:
    """Yields the last change of every key since the last truncate of its partition, unless it is a
    delete.

    The files are read twice, so that memory does not grow with the width of the rows.
    """
    current = CurrentRows()
    wanted = [*schema.key, OP, TOPIC, PARTITION, OFFSET]
    for batch in parquet_files.stream(table_writer.place, state.files, layout, only=wanted):
        current.take(
            batch.select(list(schema.key)),
            batch.column(OP),
            orders=orders_of(batch),
            origins=origins_of(batch),
        )
    return current.of(parquet_files.stream(table_writer.place, state.files, layout))
