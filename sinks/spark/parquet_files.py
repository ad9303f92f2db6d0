"""The Parquet files of a table: written with their key ranges, read in parts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.column_history import missing_value
from headwater.sinks.object_names import OP
from headwater.sinks.spark.column_types import put
from headwater.sinks.spark.key_ranges import (
    DAY_US,
    FIRST_DAY,
    LAST_DAY,
    DataFile,
    KeyRange,
    range_of,
    within,
)
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.storage_location import StorageLocation

ENDING = ".parquet"
ROW_GROUP_ROWS = 100_000
SAMPLE_ROWS = 4_000
SPLIT_AT = 1.5
"""Up to this many times the wanted size is still one file."""


def write(
    place: StorageLocation,
    rows: pa.Table,
    layout: LakeTableLayout,
    *,
    keeps_partitions: bool = False,
) -> list[DataFile]:
    """Writes new files of rows in key order, none much larger than wanted.

    Partition columns are stored in the files only if the format requires it.
    """
    found: list[DataFile] = []
    for part in _partitions(rows, layout, keeps_partitions=keeps_partitions):
        found += [
            _write_one(place, rows_of_file, layout, keeps_partitions=keeps_partitions)
            for rows_of_file in _divide(part, layout)
        ]
    return found


def read(place: StorageLocation, cell: KeyRange, layout: LakeTableLayout) -> pa.Table:
    """Returns the rows of the key range, under the columns of the layout."""
    parts = [_read_one(place, each, cell, layout) for each in cell.files]
    if not parts:
        return layout.schema.empty_table()
    return pa.concat_tables(parts)


def stream(
    place: StorageLocation,
    files: Iterable[DataFile],
    layout: LakeTableLayout,
    *,
    only: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields all rows of some files in batches; columns other than `only` are null."""
    from pyarrow import parquet

    for each in files:
        with place.reading(each.path) as file:
            reader = parquet.ParquetFile(file)
            held = set(reader.schema_arrow.names)
            columns = None if only is None else [name for name in only if name in held]
            for batch in reader.iter_batches(columns=columns):
                table = _conform(pa.Table.from_batches([batch]), each, layout)
                yield table.combine_chunks().to_batches()[0]


def stream_chosen(
    place: StorageLocation,
    files: Iterable[DataFile],
    layout: LakeTableLayout,
    *,
    only: Sequence[str],
    choose: Callable[[pa.RecordBatch], Int64Array],
) -> Iterator[pa.RecordBatch]:
    """Yields rows that are chosen by the columns `only`; other columns are read only of row groups
    with a chosen row."""
    from pyarrow import parquet

    for each in files:
        with place.reading(each.path) as file:
            reader = parquet.ParquetFile(file)
            held = set(reader.schema_arrow.names)
            names = [
                name for name in (layout.renamed.get(name, name) for name in only) if name in held
            ]
            for group in range(reader.num_row_groups):
                seen = _conform(reader.read_row_group(group, columns=names), each, layout)
                places = choose(seen.combine_chunks().to_batches()[0])
                if len(places):
                    rows = _conform(reader.read_row_group(group), each, layout)
                    yield rows.take(pa.array(places)).combine_chunks().to_batches()[0]


def _write_one(
    place: StorageLocation, rows: pa.Table, layout: LakeTableLayout, *, keeps_partitions: bool
) -> DataFile:
    """Writes rows of one partition."""
    from pyarrow import parquet

    values = tuple(_text(rows.column(name).slice(0, 1))[0].as_py() for name in layout.partition_by)
    name = f"part-{uuid4().hex}{ENDING}"
    low, high = (None, None)
    if layout.key and layout.mode != "append":
        low, high = range_of(rows.column(layout.key[0]))
    if not keeps_partitions and layout.partition_by:
        rows = rows.drop_columns(list(layout.partition_by))
    with place.writing(name) as file:
        parquet.write_table(
            rows,
            file,
            compression="zstd",
            row_group_size=ROW_GROUP_ROWS,
            use_dictionary=_repetitive(rows),
            write_statistics=_with_ends(rows),
            store_schema=False,
            coerce_timestamps="us",
        )
        size = file.tell()
    return DataFile(name, rows.num_rows, size, low, high, values)


def _repetitive(rows: pa.Table) -> list[str]:
    """Returns columns with repeated values. A dictionary of other columns would take longer than
    the rest of writing, and save nothing."""
    sample = _every(rows, -(-rows.num_rows // SAMPLE_ROWS))
    return [
        name
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        if not pa.types.is_nested(column.type)
        and 2 * pc.count_distinct(column, mode="all").as_py() <= sample.num_rows
    ]


def _every(rows: pa.Table, step: int) -> pa.Table:
    """Returns each `step`-th row. Chunk by chunk: Arrow would copy all of a column to take some."""
    found, first = [], 0
    for batch in rows.to_batches():
        found.append(batch.take(pa.array(np.arange(first, batch.num_rows, step))))
        first = (first - batch.num_rows) % step
    return pa.Table.from_batches(found, rows.schema)


def _with_ends(rows: pa.Table) -> bool | list[str]:
    """Returns columns with minimum and maximum in the file.

    Dates and timestamps outside the years 1 to 9999 have none, because some readers cannot express
    them.
    """
    chosen = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if not (_is_temporal(column.type) and _is_far(column))
    ]
    return True if len(chosen) == rows.num_columns else chosen


def _is_far(column: pa.ChunkedArray) -> bool:
    """Whether dates or timestamps are outside of these years, or are in fields of the column."""
    kind = column.type
    if pa.types.is_nested(kind):
        return True
    if column.null_count == len(column):
        return False
    ends = pc.min_max(column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
    unit = 1 if pa.types.is_date32(kind) else DAY_US
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return bool(low < FIRST_DAY * unit or high >= LAST_DAY * unit)


def _is_temporal(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_is_temporal(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _read_one(
    place: StorageLocation, data: DataFile, cell: KeyRange, layout: LakeTableLayout
) -> pa.Table:
    from pyarrow import parquet

    with place.reading(data.path) as file:
        found = parquet.read_table(file, partitioning=None)
    found = _conform(found, data, layout)
    if not layout.key or (cell.low is None and cell.high is None):
        return found
    mask = within(found.column(layout.key[0]), cell)
    return found if mask is None else found.filter(mask)


def _conform(rows: pa.Table, data: DataFile, layout: LakeTableLayout) -> pa.Table:
    """Returns the rows under the layout's columns; a file can be older than some columns."""
    given = dict(zip(layout.partition_by, data.partition, strict=False))
    columns = []
    for field in layout.schema:
        former = layout.renamed.get(field.name)
        is_new = field.name in layout.filled or (former is None and field.name in layout.forgotten)
        name = former or field.name
        if name in rows.schema.names and not is_new:
            chunks = [put(chunk, field.type) for chunk in rows.column(name).chunks]
            columns.append(pa.chunked_array(chunks, field.type))
        elif given.get(field.name) is not None:
            value = pa.array([given[field.name]]).cast(field.type)
            columns.append(_repeated(value, rows.num_rows))
        elif field.name in layout.filled:
            columns.append(_filled(rows, layout, field))
        else:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)], field.type))
    return pa.Table.from_arrays(columns, schema=layout.schema)


def _filled(rows: pa.Table, layout: LakeTableLayout, field: pa.Field) -> pa.ChunkedArray:
    """Returns the value of rows that are older than the column. Only the key of a deleted row is
    known."""
    column = layout.filled[field.name]
    if column.missing is None:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)], field.type)
    value = put(pa.array([missing_value(column)], column.type), field.type)
    values = _repeated(value, rows.num_rows)
    if layout.mode != "append":
        return values
    is_gone = pc.equal(rows.column(OP), "d")
    return pc.if_else(is_gone, pa.scalar(None, field.type), values)


def _repeated(value: pa.Array, count: int) -> pa.ChunkedArray:
    places = pa.array(np.zeros(count, dtype=np.int64))
    return pa.chunked_array([value.take(places)], value.type)


def _divide(rows: pa.Table, layout: LakeTableLayout) -> Iterator[pa.Table]:
    count = rows.num_rows
    if count <= layout.file_rows * SPLIT_AT:
        if count:
            yield rows
        return
    parts = -(-count // layout.file_rows)
    cuts = [count * number // parts for number in range(parts + 1)]
    if layout.key and layout.mode != "append":
        cuts = _at_new_keys(rows.column(layout.key[0]), cuts)
    for start, end in pairwise(cuts):
        if end > start:
            yield rows.slice(start, end - start)


def _at_new_keys(keys: pa.ChunkedArray, cuts: Sequence[int]) -> list[int]:
    """Keeps rows with the same first key column in one file, so that ranges do not touch."""
    found = [0]
    for cut in cuts[1:-1]:
        value, at = keys[cut], cut
        while at > found[-1] and keys[at - 1] == value:
            at -= 1
        found.append(at)
    return [*found, len(keys)]


def _partitions(
    rows: pa.Table, layout: LakeTableLayout, *, keeps_partitions: bool
) -> Iterator[pa.Table]:
    """Yields the rows of each partition."""
    if not layout.partition_by:
        yield rows
        return
    texts = pa.table({name: _text(rows.column(name)) for name in layout.partition_by})
    for values in texts.group_by(list(layout.partition_by)).aggregate([]).to_pylist():
        mask = None
        if "" in values.values() and not keeps_partitions:
            raise SinkRejected(
                "empty text cannot be a partition value of a Delta table, which reads it as null",
                hint="leave the column out of `partition_by`, and rebuild the table",
                table=str(layout.table),
                partition_by=layout.partition_by,
            )
        for name, value in values.items():
            column = texts.column(name)
            same = column.is_null() if value is None else pc.equal(column, value).fill_null(False)
            mask = same if mask is None else pc.and_(mask, same)
        yield rows.filter(mask)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())
