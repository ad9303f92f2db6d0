"""Maintenance of a lake table: compaction of small files, removal of expired files."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import TableHealth
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import DataFile, KeyRange
from headwater.sinks.spark.lake import LakeShadow
from headwater.sinks.spark.lake_table_writer import LakeTableWriter
from headwater.sinks.spark.layout import OWN_COLUMNS, LakeTableLayout
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.table import LakeTableState, Overtaken, TableCommit

SMALL = 4
"""A file smaller than the wanted rows divided by this is small."""


def health_of(table: TableId, state: LakeTableState, *, file_rows: int) -> TableHealth:
    small = [each for each in state.files if each.rows * SMALL < file_rows]
    return TableHealth(
        table,
        len(state.files),
        len(small) if len(state.files) > 1 else 0,
        sum(each.size for each in state.files),
    )


def maintain(table_writer: LakeTableWriter, settings: SparkSettings, *, now_ms: int) -> list[str]:
    """Compacts and removes files; the writer continues and retries if our commit came first. A
    table that was put back stays as it is: what shows that it was must not go."""
    state = table_writer.load()
    if state is None or state.is_put_back:
        return []
    done = []
    chosen = settings.of(str(table_writer.table))
    groups = list(
        _groups(state, file_rows=chosen.file_rows, files_min=settings.maintenance.small_files)
    )
    # readers of this manifest may not know which files were replaced
    if groups and settings.format != "parquet":
        compacted = _compact(table_writer, state, groups, file_rows=chosen.file_rows, now_ms=now_ms)
        if compacted is not None:
            small, large = compacted
            done.append(f"{table_writer.table}: {small} small files were compacted into {large}")
    gone = _remove_unneeded(table_writer, state, settings.maintenance.retain_ms, now_ms=now_ms)
    if gone:
        done.append(f"{table_writer.table}: {len(gone)} files removed that no version needs")
    return done


def _remove_unneeded(
    table_writer: LakeTableWriter, state: LakeTableState, retain_ms: int, *, now_ms: int
) -> Sequence[str]:
    """Leaves out the shadow of the table, which lies below its directory."""
    copy = LakeShadow(table_writer.table, state.generation + 1).directory
    gone = [
        name
        for name in table_writer.lake.find_unneeded(older_than_ms=retain_ms, now_ms=now_ms)
        if not name.startswith(f"{copy}/")
    ]
    table_writer.place.store.remove(gone)
    return gone


def _compact(
    table_writer: LakeTableWriter,
    state: LakeTableState,
    groups: Sequence[Sequence[DataFile]],
    *,
    file_rows: int,
    now_ms: int,
) -> tuple[int, int] | None:
    layout = _layout(table_writer, state, file_rows)
    rewriting = FileRewrite(
        table_writer.place, layout, keeps_partitions=table_writer.keeps_partitions
    )
    removed, added = list[DataFile](), list[DataFile]()
    for group in groups:
        removed += group
        added += rewriting.cell(KeyRange(None, None, tuple(group)), ())
    change = TableCommit(
        added=added,
        removed=removed,
        committed_ms=now_ms,
        operation="OPTIMIZE",
        keeps_rows=True,
    )
    try:
        table_writer.lake.commit(state, change)
    except Overtaken:
        return None
    return len(removed), len(added)


def _groups(state: LakeTableState, *, file_rows: int, files_min: int) -> Iterator[list[DataFile]]:
    """Returns groups of adjacent small files, each for one file of the wanted size."""
    small = [each for each in state.files if each.rows * SMALL < file_rows]
    if len(small) < files_min:
        return
    in_order = sorted(state.files, key=_order)
    for _, mine in groupby(in_order, key=lambda each: each.partition):
        held: list[DataFile] = []
        for each in mine:
            is_small = each.rows * SMALL < file_rows
            if not is_small or sum(one.rows for one in held) + each.rows > file_rows:
                if len(held) > 1:
                    yield held
                held = []
            if is_small:
                held.append(each)
        if len(held) > 1:
            yield held


def _order(file: DataFile) -> tuple[list[str], bool, bytes | int]:
    low = file.low.encode() if isinstance(file.low, str) else file.low
    values = ["" if each is None else each for each in file.partition]
    return values, low is None, 0 if low is None else low


def _layout(
    table_writer: LakeTableWriter, state: LakeTableState, file_rows: int
) -> LakeTableLayout:
    own = OWN_COLUMNS[state.mode]
    columns = pa.schema([field for field in state.schema if field.name not in own])
    return LakeTableLayout(
        table_writer.table,
        state.mode,
        (state.key,) if state.key else (),
        columns,
        partition_by=state.partition_by,
        file_rows=file_rows,
    )
