"""What is joined: bytes that all rows share, and columns with how their values become bytes."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from core_log.rows.text.decimal import decimal_to_text
from core_log.rows.text.float import float_text
from core_log.rows.text.time import UNIT_DIGITS, moments_to_text

Other = TypeVar("Other")


class Kind(IntEnum):
    """How a column's values become bytes."""

    RAW = 0
    """Text or bytes as they are; dictionaries of them spare writing again what rows share."""
    STRING = 1
    """Text as a JSON string."""
    INTEGER = 2
    """In decimal digits."""
    BOOLEAN = 3
    """As JSON's true and false."""
    VARINT = 4
    """As Kafka writes numbers; never null."""
    DECIMAL = 5
    """A JSON string with every digit of the scale."""
    MOMENT = 6
    """A moment in UTC as a JSON string with every digit of its unit."""
    FLOAT = 7
    """In the fewest digits that name the number, as Java lays them out."""


class Column(NamedTuple):
    values: pa.Array
    kind: Kind


Piece: TypeAlias = bytes | Column
"""Bytes that every row has, or a value of each row's own."""


def merged(parts: Iterable[bytes | Other]) -> list[bytes | Other]:
    """What is the same in all rows becomes one part where it stands side by side."""
    found: list[bytes | Other] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def as_text(column: Column) -> Column:
    """The same in text where it is of a kind that only the compiled way writes by itself."""
    values, kind = column
    match kind:
        case Kind.RAW if pa.types.is_dictionary(values.type):
            return Column(values.dictionary_decode(), kind)
        case Kind.DECIMAL:
            return Column(decimal_to_text(values), Kind.STRING)
        case Kind.MOMENT:
            digits = UNIT_DIGITS[values.type.unit]
            return Column(moments_to_text(values, digits=digits), Kind.STRING)
        case Kind.FLOAT:
            return Column(float_text(values), Kind.RAW)
    return column
