"""Changes of one table as columns: before, after, operation, commit time, place in the log."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.changes import Operation, TableChanges, op_codes
from headwater.core_log.model.column_history import ColumnHistory
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
from headwater.pipelines.spark_source.extent import client_settings
from headwater.pipelines.spark_source.options import ReadOptions
from headwater.sinks.evolution import holds
from headwater.sinks.spark.column_types import lake_type, put
from headwater.sinks.spark.splits import Split
from headwater.sinks.type_conversion import FAILURES, find_changed

BATCH_ROWS_MAX = 20_000
"""Spark keeps a few batches per task outside of its heap."""


def typed_batches(
    options: ReadOptions, schema: StructType, split: Split
) -> Iterator[pa.RecordBatch]:
    """Connects when the first is asked for. `schema` is what Spark has planned with."""
    typed = TypedColumns(to_arrow_schema(schema).field("after").type)
    names = frozenset(field.name for field in typed.row)
    reader = LogSplitReader(
        settings=client_settings(options),
        rules=(),
        routes=(),
        directory=Path(),
        fetch_bytes=options.fetch_bytes,
        skipped=dict,
        names=names,
    )
    for changes in reader.read(split.starts, split.ends):
        yield from typed.batches(changes)


class TypedColumns:
    """`row` is what `before` and `after` are made of. Columns of the log that it does not have are
    left out; those that the log does not have are null. A column that was renamed is the same."""

    def __init__(self, row: pa.StructType) -> None:
        self.row = row

    @classmethod
    def of(cls, schemas: Sequence[TableSchema]) -> "TypedColumns":
        """Every column that the table has ever had, under its newest name; where its type has
        changed, one that holds all of its values, else text."""
        views = [view.schema for view in ColumnHistory(schemas).views]
        return cls(pa.struct(_unify([each.columns for each in reversed(views)])))

    @property
    def arrow(self) -> pa.Schema:
        source = pa.struct([("ts_ms", pa.int64()), ("ts_us", pa.int64())])
        return pa.schema(
            [
                ("op", pa.string()),
                ("before", self.row),
                ("after", self.row),
                ("source", source),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
            ]
        )

    def batches(self, changes: TableChanges) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(changes), BATCH_ROWS_MAX):
            yield self._batch(changes.slice(start, min(BATCH_ROWS_MAX, len(changes) - start)))

    def _batch(self, changes: TableChanges) -> pa.RecordBatch:
        partition, offsets = changes.log_partition, changes.log_offsets
        assert partition is not None and offsets is not None, "changes of the log have offsets"
        count = len(changes)
        operations = np.asarray(changes.operations)
        is_delete = operations == Operation.DELETE
        has_after = ~is_delete & (operations != Operation.TRUNCATE)
        rows = self._rows(changes.schema, changes.rows.columns)
        before, has_before = rows, is_delete
        if changes.before is not None:
            images = self._rows(changes.schema, changes.before.flatten())
            has_image = changes.before.is_valid()
            before = [pc.if_else(has_image, *pair) for pair in zip(images, rows, strict=True)]
            has_before = is_delete | has_image.to_numpy(zero_copy_only=False)
        times = changes.committed_us
        source = pa.StructArray.from_arrays([pc.divide(times, 1_000), times], ["ts_ms", "ts_us"])
        return pa.RecordBatch.from_arrays(
            [
                op_codes(changes.operations),
                self._struct(before, has_before),
                self._struct(rows, has_after),
                source,
                pa.repeat(pa.scalar(partition.topic), count),
                pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
                offsets,
            ],
            schema=self.arrow,
        )

    def _struct(self, columns: Sequence[pa.Array], is_there: BoolArray) -> pa.StructArray:
        return pa.StructArray.from_arrays(columns, fields=list(self.row), mask=pa.array(~is_there))

    def _rows(self, schema: TableSchema, columns: Sequence[pa.Array]) -> list[pa.Array]:
        given = dict(zip(schema.names, columns, strict=True))
        count = len(columns[0])
        return [
            self._put(schema, given[field.name], field)
            if field.name in given
            else pa.nulls(count, field.type)
            for field in self.row
        ]

    def _put(self, schema: TableSchema, column: pa.Array, field: pa.Field) -> pa.Array:
        is_safe = holds(field.type, lake_type(column.type))
        if is_safe or not find_changed(column, field.type, by=put):
            try:
                return put(column, field.type)
            except FAILURES:
                pass
        raise SchemaRefused(
            "a column's values do not fit the type at the query's start",
            hint="start the query again: it then has the present types",
            table=str(schema.table),
            column=field.name,
            type=str(field.type),
        )


def _unify(shapes: Sequence[Iterable[Column | pa.Field]]) -> list[pa.Field]:
    """The first shape's columns in their order, then those that only later ones have."""
    types: dict[str, pa.DataType] = {}
    for shape in shapes:
        for column in shape:
            kind = lake_type(column.type)
            types[column.name] = _common(types.get(column.name, kind), kind)
    return [pa.field(name, kind) for name, kind in types.items()]


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds every value of both as it is."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(_unify([one, other]))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", _common(one.value_type, other.value_type)))
    if pa.types.is_map(one) and pa.types.is_map(other):
        keys = _common(one.key_type, other.key_type)
        return pa.map_(keys, _common(one.item_type, other.item_type))
    schemas = [pa.schema([("v", one)]), pa.schema([("v", other)])]
    try:
        found = pa.unify_schemas(schemas, promote_options="permissive").field("v").type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
    if pa.types.is_binary(found):
        return found  # any text is some bytes
    # Arrow calls a float what decimals and floats have in common, whose digits are too few.
    found = lake_type(found)
    return found if holds(found, one) and holds(found, other) else pa.string()
