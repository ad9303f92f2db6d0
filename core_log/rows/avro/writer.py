"""Writes columns in Avro's binary encoding, joined in C++ like the JSON text."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import row_writer
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of, pairs_of

AvroPart: TypeAlias = RowPart | pa.Array
"""Bytes that every row has, or a column without nulls."""

NOTHING = pa.scalar(b"", pa.binary())
FIRST_BRANCH, SECOND_BRANCH = b"\x00", b"\x02"
"""Numbers of a union's branches; ours are null and the value, in this order."""


def value_parts(column: pa.Array, *, is_optional: bool) -> list[AvroPart]:
    if not is_optional:
        assert not column.null_count, "what cannot be null is not"
        return _require(column)
    if not column.null_count:
        return [SECOND_BRANCH, *_require(column)]
    is_there = column.is_valid()
    present = column.filter(is_there)
    known = join([SECOND_BRANCH, *_require(present)], len(present))
    return [spread(known, is_there).fill_null(FIRST_BRANCH)]


def spread(present: pa.Array, is_there: pa.BooleanArray) -> pa.Array:
    """Returns the values at the places where there is one, null elsewhere."""
    mask = is_there.to_numpy(zero_copy_only=False)
    indices = np.zeros(len(mask), np.int64)
    indices[mask] = np.arange(len(present))
    return present.take(pa.array(indices, mask=~mask))


def join(parts: Sequence[AvroPart], row_count: int) -> pa.BinaryArray:
    plain = [
        part if isinstance(part, bytes | RowColumn) else RowColumn(part, ValueEncoding.RAW)
        for part in parts
    ]
    return row_writer.join(plain, row_count, kind=pa.binary())


def constant(kind: pa.DataType, value: Any, *, is_optional: bool) -> bytes:
    """Returns a value that all rows share."""
    column = pa.array([value], kind)
    encoded: bytes = join(value_parts(column, is_optional=is_optional), 1)[0].as_py()
    return encoded


def _require(column: pa.Array) -> list[AvroPart]:
    kind = column.type
    if pa.types.is_struct(kind):
        return [
            part
            for field, member in zip(kind, column.flatten(), strict=True)
            for part in value_parts(member, is_optional=field.nullable)
        ]
    if pa.types.is_list(kind):
        items = column.flatten()
        return _blocks(column, value_parts(items, is_optional=True), len(items))
    if pa.types.is_map(kind):
        keys, values, _ = pairs_of(column)
        pairs = [*value_parts(keys, is_optional=False), *value_parts(values, is_optional=True)]
        return _blocks(column, pairs, len(keys))
    if kind in (pa.string(), pa.binary()):
        return _text_parts(column)
    if kind == pa.bool_():
        return [pa.array([b"\x00", b"\x01"], pa.binary()).take(column.cast(pa.int8()))]
    if pa.types.is_floating(kind):
        return [_float_bytes(column)]
    return [RowColumn(column.cast(pa.int64()), ValueEncoding.VARINT)]


def _text_parts(column: pa.Array) -> list[AvroPart]:
    data, offsets = bytes_and_offsets(column)
    lengths = RowColumn(pa.array(np.diff(offsets)), ValueEncoding.VARINT)
    return [lengths, column_of(pa.binary(), data, offsets, like=column)]


def _float_bytes(column: pa.Array) -> pa.BinaryArray:
    width = column.type.bit_width // 8
    data = column.to_numpy().astype(f"<f{width}").view(np.uint8)
    offsets = np.arange(len(column) + 1, dtype=np.int64) * width
    return column_of(pa.binary(), data, offsets, like=column)


def _blocks(column: pa.Array, items: Sequence[AvroPart], item_count: int) -> list[AvroPart]:
    """Returns one block of a list's items or a map's pairs, if any, and the empty block that ends
    every array."""
    data, offsets = bytes_and_offsets(join(items, item_count))
    counts = np.diff(column.offsets.to_numpy()).astype(np.int64)
    bounds = offsets[np.concatenate(([0], np.cumsum(counts)))]
    blocks = column_of(pa.binary(), data, bounds, like=column)
    lengths = join([RowColumn(pa.array(counts), ValueEncoding.VARINT)], len(counts))
    heads = pc.if_else(pa.array(counts > 0), lengths, NOTHING)
    return [heads, blocks, b"\x00"]


def encoded_parts(schema: TableSchema, columns: Mapping[str, pa.Array]) -> list[AvroPart]:
    return [
        part
        for name, column in columns.items()
        for part in value_parts(column, is_optional=name not in schema.key)
    ]


def zeros_where_null(column: pa.Array) -> pa.Array:
    """Returns the column with zeros for nulls: a truncate has no row, and key columns have no
    null."""
    if not column.null_count:
        return column
    kind = column.type
    if kind in (pa.string(), pa.binary()):
        return column.fill_null("" if kind == pa.string() else b"")
    return pc.if_else(column.is_valid(), column, pa.scalar(0).cast(kind))
