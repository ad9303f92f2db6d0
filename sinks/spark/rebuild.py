"""A shadow of a table in a directory of the live one, and the commit that swaps it in."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SinkRejected, SinkUnavailable
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.store import names_below
from headwater.sinks.evolution import holds
from headwater.sinks.fold import warn_of_other_key, warn_of_other_types
from headwater.sinks.sink import DELETED_AT, CarryOver, RebuildRecipe
from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.column_types import MOMENT
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import DataFile, assign, cells_of
from headwater.sinks.spark.lake import Lake, LakeShadow
from headwater.sinks.spark.lake_table_writer import ATTEMPTS_MAX, LakeTableWriter, farthest
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.sink_state import SinkState, next_entry
from headwater.sinks.spark.table import LakeTableState, Overtaken, TableCommit, TableCreation
from headwater.sinks.spark.table_reader import layout_of

if TYPE_CHECKING:
    from headwater.sinks.sink import AppliedOffsets


COPY = re.compile(r"shadow-g(\d+)")


def shadow_of(lake: Lake, recipe: RebuildRecipe) -> LakeShadow:
    """Returns the shadow in progress if its recipe is the same, or a new one."""
    shadow = LakeShadow(recipe.table, _live(lake, recipe.table).generation + 1, recipe.newest)
    copy = Lake(lake.settings, lake.context, shadow)
    state_log = copy.state_log()
    if state_log.head().recipe != recipe.digest:
        table_writer = copy.table(recipe.table)
        if table_writer.load() is not None:
            table_writer.lake.drop()
        state_log.forget()
        if not state_log.add(replace(next_entry(SinkState(), writer=""), recipe=recipe.digest)):
            raise SinkUnavailable(
                "another process starts a copy of the table now", table=str(recipe.table)
            )
    return shadow


def swap(lake: Lake, table: TableId, carry_over: CarryOver | None = None) -> str:
    """Swaps files in one commit of the live table.

    The former version can be read until its files are removed.
    """
    table_writer = lake.table(table)
    for _ in range(ATTEMPTS_MAX):
        live = _live(lake, table)
        shadow = LakeShadow(table, live.generation + 1)
        copy = Lake(lake.settings, lake.context, shadow)
        state = copy.table(table).load()
        if state is None or state.owner is None:
            raise SinkRejected(
                "the table has no copy to swap in",
                table=str(table),
                hint="headwater rebuild PIPELINE/TABLE makes one",
            )
        owner = state.owner
        if carry_over is not None:
            state = carried_over(table_writer, live, copy.table(table), state, carry_over)
        becomes = TableCreation(
            id=live.id,
            schema=state.schema,
            mode=state.mode,
            key=state.key,
            owner=owner,
            partition_by=state.partition_by,
            generation=shadow.generation,
            columns=state.columns,
        )
        change = TableCommit(
            added=[replace(each, path=f"{shadow.directory}/{each.path}") for each in state.files],
            removed=live.files,
            offsets=_farthest_offsets(copy, state),
            feeds=state.feeds,
            committed_ms=lake.context.clock.now_ms(),
            becomes=becomes,
            operation="RESTORE",
        )
        _take_over(lake, table, live, state)
        try:
            table_writer.lake.commit(live, change)
        except Overtaken:
            continue
        _forget(copy, table)
        return f"version {live.version} of {table_writer.place.root}"
    raise SinkUnavailable("other writers keep committing to the table", table=str(table))


def _live(lake: Lake, table: TableId) -> LakeTableState:
    live = lake.table(table).load()
    if live is None:
        raise SinkRejected("the table to copy does not exist", table=str(table))
    return live


def _farthest_offsets(copy: Lake, state: LakeTableState) -> "AppliedOffsets":
    """Returns the shadow's offsets, with its known ranges without rows."""
    passed = copy.state_log().head().passed
    return {part: farthest(part, state.offsets, passed) or at for part, at in state.offsets.items()}


def _take_over(lake: Lake, table: TableId, live: LakeTableState, copy: LakeTableState) -> None:
    """Forgets ranges without rows that are known of the live table.

    They say nothing of the shadow's rows, which may come from another topic. This is done before
    the swap: a range without rows is at worst read again.
    """
    state_log, topics = lake.state_log(), live.feeds.keys() | copy.feeds.keys()
    for _ in range(ATTEMPTS_MAX):
        head = state_log.head()
        passed = {part: each for part, each in head.passed.items() if part.topic not in topics}
        feeds = {**head.feeds, **dict.fromkeys(copy.feeds, (table, live.id))}
        if (passed, feeds) == (head.passed, head.feeds):
            return
        if state_log.add(replace(next_entry(head, writer=""), passed=passed, feeds=feeds)):
            return
    raise SinkUnavailable(
        "other writers keep changing the sink's state", pipeline=lake.context.pipeline
    )


def forget_copies(lake: Lake, table: TableId) -> None:
    """Forgets what is known of the copies of a table that is to be dropped outside of its
    directory, so that no later copy is taken for one of them."""
    named = (name.partition("/")[0] for name in names_below(lake.place_of(table).store))
    generations = {int(found[1]) for each in named if (found := COPY.fullmatch(each))}
    with suppress(SinkRejected):  # a table that cannot be read is dropped, too
        if (live := lake.table(table).load()) is not None:
            generations.add(live.generation + 1)
    for generation in generations:
        _forget(Lake(lake.settings, lake.context, LakeShadow(table, generation)), table)


def _forget(copy: Lake, table: TableId) -> None:
    """Makes the shadow no table any more; its files stay where they are."""
    copy.table(table).lake.forget()
    copy.state_log().forget()


ROWS_AT_ONCE = 500_000
"""Rows that are copied in one commit of the shadow."""


def carried_over(
    table_writer: LakeTableWriter,
    live: LakeTableState,
    copy: LakeTableWriter,
    state: LakeTableState,
    carry_over: CarryOver,
) -> LakeTableState:
    """Returns the shadow with the copied rows."""
    modes = {live.mode, state.mode}
    is_unmarked = modes == {"mirror"} and table_writer.ignores_deletes
    if modes != {"soft_delete"} and (not is_unmarked or carry_over.until_us is not None):
        return state
    others = _columns_of_other_types(live.schema, state.schema)
    if not set(carry_over.key) <= set(live.schema.names) - others:
        warn_of_other_key(table_writer.table)
        return state
    layout = replace(
        layout_of(state, copy.table, carry_over.key),
        partition_by=state.partition_by,
        file_rows=copy.file_rows,
    )
    warn_of_other_types(table_writer.table, others)
    held: list[pa.RecordBatch] = []
    for batch in _find_deleted(table_writer, live, layout, carry_over):
        held.append(batch)
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            state, held = _put(copy, state, layout, pa.Table.from_batches(held)), []
    return _put(copy, state, layout, pa.Table.from_batches(held)) if held else state


def _find_deleted(
    table_writer: LakeTableWriter,
    live: LakeTableState,
    wanted: LakeTableLayout,
    carry_over: CarryOver,
) -> Iterator[pa.RecordBatch]:
    """Returns the rows under the shadow's columns."""
    layout = layout_of(live, table_writer.table, carry_over.key)
    for rows in parquet_files.stream(table_writer.place, live.files, layout):
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
    """Returns columns whose values the shadow cannot hold."""
    return {
        field.name
        for field in wanted
        if field.name in held.names and not holds(field.type, held.field(field.name).type)
    }


def _put(
    copy: LakeTableWriter, state: LakeTableState, layout: LakeTableLayout, rows: pa.Table
) -> LakeTableState:
    """Copies rows in one commit, and leaves the shadow's offsets as they were."""
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
