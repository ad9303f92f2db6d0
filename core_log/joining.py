"""Cells of a row behind each other as bytes, row for row: JSON, records and their headers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from core_log.plain_records import encode_varint
from core_log.rows.decimals import decimal_to_text
from core_log.rows.float_text import float_text
from core_log.rows.json_escapes import escape, quote
from core_log.rows.time_text import UNIT_DIGITS, moments_to_text
from core_log.speed import Warming, chosen_speed
from core_log.varint import write_varints

FEW_ROWS = 32
"""For so few the compiled way needs longer to be told what to do than the other to do it."""
WORTH_BYTES = 16 << 20


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


class Ticks(NamedTuple):
    step: timedelta
    name: str
    """In Python's words, how many digits are written."""


EPOCH = datetime(1970, 1, 1)
TIMESPECS = {
    "s": Ticks(timedelta(seconds=1), "seconds"),
    "ms": Ticks(timedelta(milliseconds=1), "milliseconds"),
    "us": Ticks(timedelta(microseconds=1), "microseconds"),
}


class Column(NamedTuple):
    values: pa.Array
    kind: Kind


Piece: TypeAlias = bytes | Column
"""Bytes that every row has, or a value of each row's own."""


Other = TypeVar("Other")


class Join(Protocol):
    def __call__(
        self, pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes
    ) -> pa.Array: ...


def join(pieces: Sequence[Piece], rows: int, *, kind: pa.DataType, null: bytes = b"") -> pa.Array:
    """A column of text or of bytes. `null` is what stands for a value that is not there."""
    if rows <= FEW_ROWS:
        return join_few(pieces, rows, kind, null)
    chosen = _chosen()
    found = chosen.now(pieces, rows, kind, null)
    chosen.count(found.nbytes)
    return found


def join_few(pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Value by value: a call that handles a column takes longer than so few of them."""
    cells = [[each] * rows if isinstance(each, bytes) else _cells(each, null) for each in pieces]
    joined = [b"".join(row) for row in zip(*cells, strict=True)] if cells else [b""] * rows
    if kind == pa.binary():
        return pa.array(joined, kind)
    return pa.array([each.decode() for each in joined], kind)


def _cells(column: Column, null: bytes) -> list[bytes]:
    if column.kind == Kind.MOMENT and (written := _moments(column.values, null)) is not None:
        return written
    if column.kind not in WRITERS:
        column = as_text(column)
    write = WRITERS[column.kind]
    return [null if each is None else write(each) for each in column.values.to_pylist()]


def _moments(values: pa.Array, null: bytes) -> list[bytes] | None:
    """None where one is of a year that Python has no name for."""
    if values.type.unit not in TIMESPECS:
        return None
    ticks = TIMESPECS[values.type.unit]
    try:
        return [
            null
            if each is None
            else f'"{(EPOCH + each * ticks.step).isoformat(timespec=ticks.name)}Z"'.encode()
            for each in values.view(pa.int64()).to_pylist()
        ]
    except OverflowError:
        return None


def join_plainly(pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Put together in C++: no Python object per value."""
    parts = merged(part for some in _with_numbers_together(pieces) for part in _parts(some))
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return pa.repeat(pa.scalar(parts[0], pa.binary()).cast(kind), rows)
    return pc.binary_join_element_wise(
        *(_of_kind(part, kind) for part in parts),
        _of_kind(b"", kind),
        null_handling="replace",
        null_replacement=null.decode(),
    )


def merged(parts: Iterable[bytes | Other]) -> list[bytes | Other]:
    """What is the same in all rows becomes one part where it stands side by side."""
    found: list[bytes | Other] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def _with_numbers_together(pieces: Iterable[Piece]) -> Iterator[Piece | list[pa.Array]]:
    """Varints that stand side by side are written at once."""
    for is_varint, some in groupby(
        pieces, lambda each: isinstance(each, Column) and each.kind == Kind.VARINT
    ):
        if is_varint:
            yield [each.values for each in some if isinstance(each, Column)]
        else:
            yield from some


def _parts(piece: Piece | list[pa.Array]) -> list[bytes | pa.Array]:
    if isinstance(piece, bytes):
        return [piece]
    if isinstance(piece, list):
        return [write_varints(*(each.to_numpy() for each in piece))]
    values, form = as_text(piece)
    match form:
        case Kind.RAW:
            return [values]
        case Kind.STRING if values.null_count:
            return [pc.binary_join_element_wise('"', escape(values), '"', "")]
        case Kind.STRING:
            return [b'"', escape(values), b'"']
        case _:
            return [values.cast(pa.string())]


WRITERS: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.RAW: lambda value: value if isinstance(value, bytes) else value.encode(),
    Kind.STRING: lambda value: quote(value).encode(),
    Kind.INTEGER: lambda value: b"%d" % value,
    Kind.BOOLEAN: lambda value: b"true" if value else b"false",
    Kind.VARINT: encode_varint,
    Kind.DECIMAL: lambda value: f'"{value:f}"'.encode(),
}
"""Of single values that are not null; moments are strings by then."""


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


def _of_kind(part: bytes | pa.Array, kind: pa.DataType) -> pa.Array | pa.Scalar:
    found = pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part
    return found if found.type == kind else found.cast(kind)


@cache
def _chosen() -> Warming[Join]:
    return Warming(join_plainly, _compiled if chosen_speed() == "fast" else None, WORTH_BYTES)


def _compiled() -> Join:
    from core_log.joining_fast import join_compiled

    # It is compiled when it is first called.
    some: list[Piece] = [Column(pa.array(["a"]), Kind.STRING), b"b"]
    join_compiled(some, 1, pa.string(), b"null")
    return join_compiled
