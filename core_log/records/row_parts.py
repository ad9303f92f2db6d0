"""Parts of a row: bytes that all rows share, and columns with the encoding of their values."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.records.json_escapes import escape
from headwater.core_log.records.varint import write_varints
from headwater.core_log.rows.text.datetime import UNIT_DIGITS, moments_to_text
from headwater.core_log.rows.text.decimal import decimal_to_text
from headwater.core_log.rows.text.float import float_text

Other = TypeVar("Other")


class ValueEncoding(IntEnum):
    """The encoding of a column's values as bytes."""

    RAW = 0
    """Text or bytes unchanged; a dictionary column avoids encoding shared values again."""
    STRING = 1
    """Text as a JSON string."""
    INTEGER = 2
    """In decimal digits."""
    BOOLEAN = 3
    """As JSON's true and false."""
    VARINT = 4
    """As Kafka encodes numbers; never null."""
    DECIMAL = 5
    """A JSON string with every digit of the scale."""
    MOMENT = 6
    """A timestamp in UTC as a JSON string with every digit of its unit."""
    FLOAT = 7
    """In the fewest digits that identify the number, in Java's format."""


class RowColumn(NamedTuple):
    values: pa.Array
    kind: ValueEncoding


RowPart: TypeAlias = bytes | RowColumn
"""Bytes that every row has, or a column with one value per row."""


def merge_constants(parts: Iterable[bytes | Other]) -> list[bytes | Other]:
    """Merges neighbouring parts that are the same in all rows into one part."""
    found: list[bytes | Other] = []
    shared: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            shared.append(part)
            continue
        if shared:
            found.append(b"".join(shared))
            shared.clear()
        found.append(part)
    if shared:
        found.append(b"".join(shared))
    return found


def as_text(column: RowColumn) -> RowColumn:
    """Returns the part as text if only the compiled writer can encode its type."""
    values, kind = column
    match kind:
        case ValueEncoding.RAW if pa.types.is_dictionary(values.type):
            return RowColumn(values.dictionary_decode(), kind)
        case ValueEncoding.DECIMAL:
            return RowColumn(decimal_to_text(values), ValueEncoding.STRING)
        case ValueEncoding.MOMENT:
            digits = UNIT_DIGITS[values.type.unit]
            return RowColumn(moments_to_text(values, digits=digits), ValueEncoding.STRING)
        case ValueEncoding.FLOAT:
            return RowColumn(float_text(values), ValueEncoding.RAW)
    return column


def join_plainly(parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Joins in C++, without one Python object per value."""
    merged = merge_constants(
        part for some in _with_numbers_together(parts) for part in _parts(some)
    )
    if len(merged) == 1 and isinstance(merged[0], bytes):
        return pa.repeat(pa.scalar(merged[0], pa.binary()).cast(kind), rows)
    return pc.binary_join_element_wise(
        *(_of_kind(part, kind) for part in merged),
        _of_kind(b"", kind),
        null_handling="replace",
        null_replacement=null.decode(),
    )


def _with_numbers_together(parts: Iterable[RowPart]) -> Iterator[RowPart | list[pa.Array]]:
    """Merges neighbouring varints, so that they are written at once."""
    for is_varint, some in groupby(
        parts, lambda each: isinstance(each, RowColumn) and each.kind == ValueEncoding.VARINT
    ):
        if is_varint:
            yield [each.values for each in some if isinstance(each, RowColumn)]
        else:
            yield from some


def _parts(part: RowPart | list[pa.Array]) -> list[bytes | pa.Array]:
    if isinstance(part, bytes):
        return [part]
    if isinstance(part, list):
        return [write_varints(*(each.to_numpy() for each in part))]
    values, form = as_text(part)
    match form:
        case ValueEncoding.RAW:
            return [values]
        case ValueEncoding.STRING if values.null_count:
            return [pc.binary_join_element_wise('"', escape(values), '"', "")]
        case ValueEncoding.STRING:
            return [b'"', escape(values), b'"']
        case _:
            return [values.cast(pa.string())]


def _of_kind(part: bytes | pa.Array, kind: pa.DataType) -> pa.Array | pa.Scalar:
    found = pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part
    return found if found.type == kind else found.cast(kind)
