"""Deleted rows that only the live table still has, put into its copy before the swap."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sinks.carry_over import warn_of_other_key, warn_of_other_types
from headwater.sinks.evolution import holds
from headwater.sinks.sink import DELETED_AT, CarryOver
from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.column_types import MOMENT
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import DataFile, assign, cells_of
from headwater.sinks.spark.lake_table_writer import LakeTableWriter
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.table import LakeTableState, TableCommit
from headwater.sinks.spark.table_reader import layout_of

ROWS_AT_ONCE = 500_000
"""Rows that are carried over in one commit of the copy."""


def carried_over(
    kept: LakeTableWriter,
    live: LakeTableState,
    copy: LakeTableWriter,
    state: LakeTableState,
    carry_over: CarryOver,
) -> LakeTableState:
    """The copy as it is then."""
    modes = {live.mode, state.mode}
    is_unmarked = modes == {"mirror"} and kept.ignores_deletes
    if modes != {"soft_delete"} and (not is_unmarked or carry_over.until_us is not None):
        return state
    others = _columns_of_other_types(live.schema, state.schema)
    if not set(carry_over.key) <= set(live.schema.names) - others:
        warn_of_other_key(kept.table)
        return state
    layout = replace(
        layout_of(state, copy.table, carry_over.key),
        partition_by=state.partition_by,
        file_rows=copy.file_rows,
    )
    warn_of_other_types(kept.table, others)
    held: list[pa.RecordBatch] = []
    for batch in _find_deleted(kept, live, layout, carry_over):
        held.append(batch)
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            state, held = _put(copy, state, layout, pa.Table.from_batches(held)), []
    return _put(copy, state, layout, pa.Table.from_batches(held)) if held else state


def _find_deleted(
    kept: LakeTableWriter, live: LakeTableState, wanted: LakeTableLayout, carry_over: CarryOver
) -> Iterator[pa.RecordBatch]:
    """In the columns of the copy."""
    layout = layout_of(live, kept.table, carry_over.key)
    for rows in parquet_files.stream(kept.place, live.files, layout):
        if layout.mode == "soft_delete":
            rows = rows.filter(rows.column(DELETED_AT).is_valid())
        if carry_over.until_us is not None:
            until = pa.scalar(carry_over.until_us, pa.int64()).cast(MOMENT)
            rows = rows.filter(pc.less_equal(rows.column(DELETED_AT), until))
        if len(rows):
            yield _conform(rows, wanted)


def _conform(rows: pa.RecordBatch, layout: LakeTableLayout) -> pa.RecordBatch:
    others = _columns_of_other_types(rows.schema, layout.schema)
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names and field.name not in others
        else pa.nulls(len(rows), field.type)
        for field in layout.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


def _columns_of_other_types(held: pa.Schema, wanted: pa.Schema) -> set[str]:
    """Whose values the copy has no place for."""
    return {
        field.name
        for field in wanted
        if field.name in held.names and not holds(field.type, held.field(field.name).type)
    }


def _put(
    copy: LakeTableWriter, state: LakeTableState, layout: LakeTableLayout, rows: pa.Table
) -> LakeTableState:
    """One commit, after which the copy stands where it stood."""
    rewriting = FileRewrite(copy.place, layout, keeps_partitions=copy.keeps_partitions)
    cells = cells_of(state.files)
    places = assign(pa.concat_arrays(rows.column(layout.key[0]).chunks), cells)
    added, removed = list[DataFile](), list[DataFile]()
    for number in np.unique(places).tolist():
        files = rewriting.add_missing(cells[number], rows.filter(pa.array(places == number)))
        if files is not None:
            added += files
            removed += cells[number].files
    if not added:
        return state
    return copy.lake.commit(
        state, TableCommit(added=added, removed=removed, committed_ms=copy.now_ms)
    )
