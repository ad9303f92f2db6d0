"""Rows as parts, which are shared bytes or columns, and their writing as JSON, records, headers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, chosen_speed
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.varint import write_varints
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of
from headwater.core_log.rows.text.datetime import UNIT_DIGITS, moments_to_text
from headwater.core_log.rows.text.number import decimal_to_text, float_text

Other = TypeVar("Other")
FEW_ROWS = 32
"""For so few rows, preparing the compiled writer takes longer than the whole work of the other."""
WORTH_BYTES = 16 << 20
BACKSLASH, QUOTE, FIRST_PRINTABLE = ord("\\"), ord('"'), 0x20
SHORT_ESCAPES = {QUOTE: '"', BACKSLASH: "\\", 8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}
LONG_WIDTH = 6  # \u001F
ESCAPES = {code: rf"\u{code:04X}" for code in range(FIRST_PRINTABLE)} | {
    code: f"\\{letter}" for code, letter in SHORT_ESCAPES.items()
}
"""Escapes with hexadecimal digits in upper case."""


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


class EncodingTicks(NamedTuple):
    step: timedelta
    name: str
    """Number of digits, by Python's name of it."""


EPOCH = datetime(1970, 1, 1)
TIMESPECS = {
    "s": EncodingTicks(timedelta(seconds=1), "seconds"),
    "ms": EncodingTicks(timedelta(milliseconds=1), "milliseconds"),
    "us": EncodingTicks(timedelta(microseconds=1), "microseconds"),
}


class RowWriter(Protocol):
    def __call__(
        self, parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes
    ) -> pa.Array: ...


def join(parts: Sequence[RowPart], rows: int, *, kind: pa.DataType, null: bytes = b"") -> pa.Array:
    """Returns a column of text or of bytes. `null` is written for a missing value."""
    if rows <= FEW_ROWS:
        return join_few(parts, rows, kind, null)
    chosen = _choose()
    found = chosen.now(parts, rows, kind, null)
    chosen.count(found.nbytes)
    return found


def join_few(parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Joins value by value: a call on a column takes longer than so few values."""
    columns = [
        [each] * rows if isinstance(each, bytes) else _encode_values(each, null) for each in parts
    ]
    joined = [b"".join(row) for row in zip(*columns, strict=True)] if columns else [b""] * rows
    if kind == pa.binary():
        return pa.array(joined, kind)
    return pa.array([each.decode() for each in joined], kind)


def _encode_values(column: RowColumn, null: bytes) -> list[bytes]:
    if (
        column.kind == ValueEncoding.MOMENT
        and (written := _moments(column.values, null)) is not None
    ):
        return written
    if column.kind not in WRITERS:
        column = as_text(column)
    write = WRITERS[column.kind]
    return [null if each is None else write(each) for each in column.values.to_pylist()]


def _moments(values: pa.Array, null: bytes) -> list[bytes] | None:
    """Returns the timestamps as text; None if one has a year that Python's datetime does not
    support."""
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


WRITERS: Mapping[ValueEncoding, Callable[[Any], bytes]] = {
    ValueEncoding.RAW: lambda value: value if isinstance(value, bytes) else value.encode(),
    ValueEncoding.STRING: lambda value: quote(value).encode(),
    ValueEncoding.INTEGER: lambda value: b"%d" % value,
    ValueEncoding.BOOLEAN: lambda value: b"true" if value else b"false",
    ValueEncoding.VARINT: encode_varint,
    ValueEncoding.DECIMAL: lambda value: f'"{value:f}"'.encode(),
}
"""Writers of single values that are not null; timestamps are strings already."""


@cache
def _choose() -> CompiledSpeed[RowWriter]:
    return CompiledSpeed(
        join_plainly, _load_compiled if chosen_speed() == "fast" else None, WORTH_BYTES
    )


def _load_compiled() -> RowWriter:
    from headwater.core_log.compiled.row_writer_kernels import join_compiled

    # It is compiled at the first call.
    some: list[RowPart] = [RowColumn(pa.array(["a"]), ValueEncoding.STRING), b"b"]
    join_compiled(some, 1, pa.string(), b"null")
    return join_compiled


def quote(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'


def escape(column: pa.Array) -> pa.Array:
    """Returns the column itself if nothing needs an escape, which one scan finds."""
    if not len(column):
        return column
    data, offsets = bytes_and_offsets(column)
    indices = _find_escapes(data)
    if not len(indices):
        return column
    codes = data[indices]
    widths = WIDTHS[codes].astype(np.int64)
    grown = np.concatenate(([0], np.cumsum(widths - 1)))
    text = _spread(data, indices, widths, codes, grown)
    ends = offsets + grown[np.searchsorted(indices, offsets)]
    return column_of(pa.string(), text, ends, like=column)


def _find_escapes(data: UInt8Array) -> Int64Array:
    is_escaped = data == QUOTE
    is_escaped |= data == BACKSLASH
    is_escaped |= data < FIRST_PRINTABLE
    return np.flatnonzero(is_escaped)


def _spread(
    data: UInt8Array, indices: Int64Array, widths: Int64Array, codes: UInt8Array, grown: Int64Array
) -> UInt8Array:
    """Makes room for every escape and writes it there."""
    text: UInt8Array = np.empty(len(data) + int(grown[-1]), np.uint8)
    is_copied, starts = np.ones(len(text), np.bool_), indices + grown[:-1]
    for step in range(1, int(widths.max())):
        longer = starts if step == 1 else starts[widths > step]
        is_copied[longer + step] = False
    text[is_copied] = data
    text[starts] = BACKSLASH
    is_short = widths == 2
    if is_short.all():
        text[starts + 1] = LETTERS[codes]
        return text
    text[starts[is_short] + 1] = LETTERS[codes[is_short]]
    long_starts, long_codes = starts[~is_short], codes[~is_short]
    for offset in range(1, LONG_WIDTH):
        text[long_starts + offset] = LONG[long_codes, offset]
    return text


def _widths() -> UInt8Array:
    widths = np.ones(256, np.uint8)
    widths[:FIRST_PRINTABLE] = LONG_WIDTH
    widths[list(SHORT_ESCAPES)] = 2
    return widths


def _letters() -> UInt8Array:
    letters = np.zeros(256, np.uint8)
    letters[list(SHORT_ESCAPES)] = [ord(letter) for letter in SHORT_ESCAPES.values()]
    return letters


WIDTHS, LETTERS = _widths(), _letters()
LONG = np.array(
    [list(rf"\u{code:04X}".encode()) for code in range(FIRST_PRINTABLE)], dtype=np.uint8
)
"""Per byte: the length of its JSON form, the letter of a short escape, and the long escapes."""
