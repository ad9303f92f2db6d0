"""What a driver hands over, as Arrow columns: whole columns are parsed, never single values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.text.time import text_to_times

TRUE, FALSE = pa.array(["t", "1", "true"]), pa.array(["f", "0", "false"])
END_OF_DAY = r"^24:00:00(\.0+)?$"
"""A time of day that no clock shows."""


def batch_of(schema: TableSchema, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    arrays = [
        column_of(values, column.type, name=column.name, table=str(schema.table))
        for values, column in zip(columns, schema.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def columns_of(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows of Python values turned into columns."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def column_of(values: Any, kind: pa.DataType, *, name: str, table: str) -> pa.Array:
    """Texts are parsed as `kind`, other values taken for what they are; raises `SourceRejected`
    where they are neither."""
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return _parse(values, kind)
        if any(isinstance(value, str) for value in values) and not pa.types.is_string(kind):
            return _parse(pa.array([_text(value) for value in values], pa.string()), kind)
        if pa.types.is_string(kind):
            return pa.array([_text(value) for value in values], pa.string())
        if pa.types.is_decimal(kind):
            return pa.array([_text(value) for value in values], pa.string()).cast(kind)
        if pa.types.is_boolean(kind):
            return _truths(pa.array([_text(value) for value in values], pa.string()))
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError):
        raise SourceRejected(
            "a column holds values that are none of its type",
            table=table,
            column=name,
            type=str(kind),
            hint="leave the column out with `transform: drop`, or correct it at the source",
        ) from None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if texts.type == kind:
        return texts
    if pa.types.is_string(texts.type):
        if pa.types.is_boolean(kind):
            return _truths(texts)
        if pa.types.is_binary(kind):
            return unhex(texts)
        if pa.types.is_time(kind):
            ended = pc.replace_substring_regex(texts, END_OF_DAY, "24:00:00")
            return text_to_times(pc.binary_join_element_wise(ended, "Z", ""), kind)
    return texts.cast(kind)


def _truths(texts: pa.StringArray) -> pa.BooleanArray:
    """Raises for what is neither: MySQL's `tinyint(1)` holds any small number."""
    words = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(words, value_set=each) for each in (TRUE, FALSE))
    if pc.any(pc.invert(pc.or_(pc.or_(is_true, is_false), words.is_null()))).as_py():
        raise ValueError("neither true nor false")
    return pc.if_else(words.is_valid(), is_true, None)


def unhex(texts: pa.StringArray) -> pa.BinaryArray:
    """PostgreSQL's `\\x0a1b` as the bytes it stands for: all digits of the column at once."""
    digits = pc.utf8_slice_codeunits(texts.fill_null("\\x"), 2)
    _, offsets, data = digits.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[digits.offset : digits.offset + len(digits) + 1]
    whole = bytes.fromhex(bytes(memoryview(data)[int(ends[0]) : int(ends[-1])]).decode())
    cuts = pa.py_buffer(((ends - ends[0]) // 2).astype(np.int32))
    found = pa.BinaryArray.from_buffers(pa.binary(), len(texts), [None, cuts, pa.py_buffer(whole)])
    return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found
