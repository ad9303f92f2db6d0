"""Writes columns as JSON text, joined in C++ without one Python object per value."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.records import row_writer
from headwater.core_log.records.row_writer import (
    RowColumn,
    RowPart,
    ValueEncoding,
    merge_constants,
    quote,
)
from headwater.core_log.rows.arrow_buffers import pairs_of
from headwater.core_log.rows.text.bytes import to_base64

EMPTY = pa.scalar("", pa.string())
TEXT = pa.string()
NULL = b"null"
NAMES_MAX = 10_000


def constant(value: Any) -> bytes:
    """Returns a value that all rows share."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return (quote(value) if isinstance(value, str) else str(value)).encode()


def json_text(column: pa.Array) -> RowColumn:
    """Returns the JSON encoding of a column in its wire form."""
    kind = column.type
    if kind == pa.string():
        return RowColumn(column, ValueEncoding.STRING)
    if kind == pa.binary():
        return RowColumn(to_base64(column), ValueEncoding.STRING)
    if kind == pa.bool_():
        return RowColumn(column, ValueEncoding.BOOLEAN)
    if pa.types.is_floating(kind):
        return RowColumn(column, ValueEncoding.FLOAT)
    if pa.types.is_list(kind):
        return RowColumn(_list_text(column), ValueEncoding.RAW)
    if pa.types.is_struct(kind):
        return RowColumn(_struct_text(column), ValueEncoding.RAW)
    if pa.types.is_map(kind):
        return RowColumn(_map_text(column), ValueEncoding.RAW)
    return RowColumn(column, ValueEncoding.INTEGER)


def object_parts(names: Sequence[str], texts: Iterable[RowColumn]) -> list[RowPart]:
    """Returns the parts `{"a":`, a column, `,"b":`, another column, `}`."""
    parts: list[RowPart] = [b"{"]
    for index, (name, text) in enumerate(zip(names, texts, strict=True)):
        parts += [b"," if index else b"", member_name(name), text]
    return [*parts, b"}"]


@lru_cache(NAMES_MAX)
def member_name(name: str) -> bytes:
    """Returns the name of a member of an object, with its colon. The same ones come again."""
    return f"{quote(name)}:".encode()


def join(
    parts: Sequence[RowPart], row_count: int, *, kind: pa.DataType = TEXT
) -> pa.StringArray | pa.BinaryArray:
    """Joins all parts of each row; a missing value of a column becomes JSON's null."""
    merged = merge_constants([part for part in parts if part])
    return row_writer.join(merged, row_count, kind=kind, null=NULL)


def _list_text(column: pa.Array) -> pa.Array:
    items = join([json_text(column.flatten())], len(column.flatten()))
    counts = pc.list_value_length(column).fill_null(0)
    return _enclose("[", items, "]", counts, column)


def _map_text(column: pa.MapArray) -> pa.Array:
    keys, values, counts = pairs_of(column)
    members = join([json_text(keys), b":", json_text(values)], len(keys))
    return _enclose("{", members, "}", counts, column)


def _enclose(
    opening: str, items: pa.Array, closing: str, counts: pa.Array, column: pa.Array
) -> pa.Array:
    """Encloses groups of that many items with commas between them; null where the column is."""
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    text = pc.binary_join_element_wise(opening, joined, closing, EMPTY)
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _struct_text(column: pa.Array) -> pa.Array:
    names = [member.name for member in column.type]
    texts = [json_text(member) for member in column.flatten()]
    text = join(object_parts(names, texts), len(column))
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text
