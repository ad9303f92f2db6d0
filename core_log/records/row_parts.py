"""Parts of a row: bytes that all rows share, and columns with the encoding of their values."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from headwater.core_log.rows.text.decimal import decimal_to_text
from headwater.core_log.rows.text.float import float_text
from headwater.core_log.rows.text.time import UNIT_DIGITS, moments_to_text

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
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
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
