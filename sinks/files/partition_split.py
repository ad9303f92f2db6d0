"""Changes as rows to be appended, divided by the columns that a table is partitioned by."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import TableChanges, op_codes
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.sinks.object_names import hive_partition_directory

OPERATION, OFFSET, COMMITTED_AT = "_headwater_op", "_headwater_offset", "_headwater_committed_at"
ADDED = (
    Column(OPERATION, pa.string()),
    Column(OFFSET, pa.int64()),
    Column(COMMITTED_AT, pa.timestamp("us", "UTC")),
)


class AppendedRows(NamedTuple):
    schema: TableSchema
    rows: pa.RecordBatch


def to_append_rows(changes: TableChanges, *, has_metadata: bool) -> AppendedRows:
    """No key, and every column can be null: of deletes and truncates only little is known."""
    columns = tuple(Column(each.name, each.type) for each in changes.schema.columns)
    arrays = list(changes.rows.columns)
    if has_metadata:
        if taken := {OPERATION, OFFSET, COMMITTED_AT} & set(changes.schema.names):
            raise SinkRejected(
                "a column has the name of one that this sink adds",
                hint="rename it in transform, or set metadata_columns: false",
                table=str(changes.schema.table),
                columns=sorted(taken),
            )
        assert changes.log_offsets is not None, "what a sink gets has its place in the log"
        columns += ADDED
        arrays += [
            op_codes(changes.operations),
            changes.log_offsets,
            changes.committed_us.cast(pa.timestamp("us", "UTC")),
        ]
    schema = TableSchema(changes.schema.table, columns, ())
    return AppendedRows(schema, pa.RecordBatch.from_arrays(arrays, schema=schema.arrow))


def divide(part: AppendedRows, by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by directory, in the order they had."""
    rows = part.rows
    if not by:
        yield "", rows
        return
    if missing := [name for name in by if name not in rows.schema.names]:
        raise SinkRejected(
            "the table lacks columns that it should be partitioned by",
            hint="name columns of the table in tables.partition_by, or add them in transform",
            table=str(part.schema.table),
            columns=missing,
        )
    directories = [directories_of(rows.column(name), part.schema, name) for name in by]
    paths = pc.binary_join_element_wise(*directories, "/").dictionary_encode()
    codes = paths.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    for place, path in enumerate(paths.dictionary.to_pylist()):
        theirs = order[ends[place] : ends[place + 1]]
        whole = len(theirs) == rows.num_rows
        yield path, rows if whole else rows.take(pa.array(theirs))


def directories_of(column: pa.Array, schema: TableSchema, name: str) -> pa.Array:
    """`column=value` of each row; escaped once per distinct value."""
    try:
        texts = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SinkRejected(
            "values of this column cannot name directories",
            hint="partition by a column of texts, numbers, dates or times",
            table=str(schema.table),
            column=name,
        ) from error
    values = texts.dictionary_encode()
    names = pa.array(
        [hive_partition_directory(name, text) for text in values.dictionary.to_pylist()]
    )
    directories = names.cast(pa.string()).take(values.indices)
    return directories.fill_null(hive_partition_directory(name, None))
