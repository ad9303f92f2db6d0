"""Finds rows of a snapshot by the keys that were streamed meanwhile."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray


def own_copy(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Copies keys: text of the stream shares memory with everything that came with it."""
    everything = pa.array(np.arange(keys.num_rows))
    columns = [
        column if pa.types.is_primitive(column.type) else column.take(everything)
        for column in keys.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=keys.schema)


def having_keys(rows: pa.RecordBatch, keys: pa.RecordBatch) -> BoolArray:
    """Returns the rows that have one of the keys; the columns of `keys` are the key's."""
    if not rows.num_rows or not keys.num_rows:
        return np.zeros(rows.num_rows, dtype=bool)
    names = keys.schema.names
    ours, theirs = lines_of(rows.select(names)), lines_of(keys)
    found: BoolArray = pc.is_in(ours, value_set=theirs).to_numpy(zero_copy_only=False)
    return found


def lines_of(keys: pa.RecordBatch) -> pa.Array:
    """Returns one value per row, which two rows share only if their keys are the same."""
    if keys.num_columns == 1:
        return plain_column(keys.column(0))
    parts: list[pa.Array] = []
    for column in keys.columns:
        text = bytes_of(column)
        lengths = pc.fill_null(pc.binary_length(text), -1)
        parts += [lengths.cast(pa.string()).cast(pa.binary()), pc.fill_null(text, b"")]
    return pc.binary_join_element_wise(*parts, b":")


def plain_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column
    return bytes_of(column)


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns bytes for any type, which are the same for the same value."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        texts = [None if value is None else repr(value).encode() for value in column.to_pylist()]
        return pa.array(texts, pa.binary())
    return column.cast(pa.string()).cast(pa.binary())
