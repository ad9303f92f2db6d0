"""Tables of the lake read back, for comparing: their rows at one version, and where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core_log.changes import Operation
from core_log.table_schema import TableSchema
from sinks.latest import newest
from sinks.sink import Stand, Stands, TableVersion
from sinks.spark import parquet_files
from sinks.spark.column_types import take_back
from sinks.spark.kept_table import KeptTable, farthest
from sinks.spark.keyspace import Cell
from sinks.spark.layout import (
    DELETED_AT,
    IS_CURRENT,
    OFFSET,
    OP,
    OWN_COLUMNS,
    PARTITION,
    TOPIC,
    Layout,
)
from sinks.spark.table import TableState


@dataclass(frozen=True, slots=True)
class Opened:
    """A version of a table; its files stay while they are read."""

    stands: Stands
    columns: tuple[str, ...]
    keeps_deleted: bool
    batches: Iterator[pa.RecordBatch]


def open_table(
    kept: KeptTable, schema: TableSchema, *, known: Stands, ignores_deletes: bool
) -> Opened:
    state = kept.load()
    if state is None:
        return Opened({}, schema.names, False, iter(()))
    names = tuple(
        column.name
        for column in schema.columns
        if column.name in state.schema.names and not pa.types.is_map(column.type)
    )
    stands = {part: farthest(part, state.stands, known) or at for part, at in state.stands.items()}
    layout = layout_of(state, schema)
    return Opened(stands, names, ignores_deletes, _batches(kept, state, layout, schema, names))


def versions_of(kept: KeptTable, *, newest: int) -> list[TableVersion]:
    """Those that say where they stood; our own maintenance moves nothing and says nothing."""
    state = kept.load()
    if state is None:
        return []
    ids = {topic: feed.topic_id for topic, feed in state.feeds.items()}
    return [
        TableVersion(
            str(each.version),
            {
                part: Stand(ids[part.topic], at)
                for part, at in each.stands.items()
                if part.topic in ids
            },
            each.source_ms,
            each.positions,
        )
        for each in kept.lake.versions(newest)
        if each.stands
    ]


def layout_of(state: TableState, schema: TableSchema) -> Layout:
    """The table as it is, whatever the settings say now."""
    own = OWN_COLUMNS[state.mode]
    return Layout(
        schema.table,
        state.mode,
        schema.key,
        pa.schema([field for field in state.schema if field.name not in own]),
        partition_by=state.partition_by,
    )


def _batches(
    kept: KeptTable,
    state: TableState,
    layout: Layout,
    schema: TableSchema,
    names: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    fields = [schema.arrow.field(name) for name in names]
    if state.mode == "append" and schema.key:
        whole = parquet_files.read(kept.place, Cell(None, None, state.files), layout)
        found: Iterator[pa.RecordBatch] = iter(_newest(whole, schema).to_batches())
    else:
        found = parquet_files.stream(kept.place, state.files, layout)
    for batch in found:
        rows = batch
        if state.mode == "soft_delete":
            rows = rows.filter(rows.column(DELETED_AT).is_null())
        elif state.mode == "scd2":
            rows = rows.filter(rows.column(IS_CURRENT))
        if rows.num_rows:
            columns = [take_back(rows.column(field.name), field.type) for field in fields]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _newest(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The last change of every key since the last truncate of its partition, unless it is a
    delete."""
    rows = rows.take(pa.array(np.argsort(np.asarray(rows.column(OFFSET)), kind="stable")))
    truncates = rows.filter(pc.equal(rows.column(OP), "t"))
    for each in truncates.select([TOPIC, PARTITION, OFFSET]).to_pylist():
        is_before = pc.and_(
            pc.and_(
                pc.equal(rows.column(TOPIC), each[TOPIC]),
                pc.equal(rows.column(PARTITION), each[PARTITION]),
            ),
            pc.less_equal(rows.column(OFFSET), each[OFFSET]),
        )
        rows = rows.filter(pc.invert(is_before))
    keys = rows.select(list(schema.key)).combine_chunks().to_batches()
    places = newest(keys[0]) if keys else None
    if places is not None:
        rows = rows.take(places)
    return rows.filter(pc.not_equal(rows.column(OP), Operation.DELETE.name[0].lower()))
