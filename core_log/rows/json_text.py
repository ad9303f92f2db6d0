"""Columns as JSON text, put together in C++: no Python object per value."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core_log.rows.byte_text import to_base64
from core_log.rows.stretches import Bytes, column_of, stretches
from core_log.varint import Int64s

Piece: TypeAlias = str | pa.Array
"""Text that every row has, or a column of text; its nulls are written as JSON's null."""

EMPTY = pa.scalar("", pa.string())
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7
"""Between them Java writes a float without an exponent."""
FLOAT = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e\+?(?P<exponent>-?[0-9]+))?$"
NULL = "null"
BACKSLASH, QUOTE, FIRST_PRINTABLE = ord("\\"), ord('"'), 0x20
SHORT_ESCAPES = {QUOTE: '"', BACKSLASH: "\\", 8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}
LONG_WIDTH = 6  # \u001F
ESCAPES = {code: rf"\u{code:04X}" for code in range(FIRST_PRINTABLE)} | {
    code: f"\\{letter}" for code, letter in SHORT_ESCAPES.items()
}
"""As Jackson writes them, and with it Debezium: hexadecimal digits in upper case."""


class JsonText(NamedTuple):
    column: pa.Array
    is_bare: bool
    """The characters of strings, to be put between quotes; else whole JSON values."""


def quote(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'


def constant(value: Any) -> str:
    """A value that all rows share."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else str(value)


def json_text(column: pa.Array) -> JsonText:
    """Text of a column in its wire form; what is null in it stays null."""
    kind = column.type
    if kind == pa.string():
        return JsonText(escape(column), is_bare=True)
    if kind == pa.binary():
        return JsonText(to_base64(column), is_bare=True)
    if pa.types.is_floating(kind):
        return JsonText(_float_text(column), is_bare=False)
    if pa.types.is_list(kind):
        return JsonText(_list_text(column), is_bare=False)
    if pa.types.is_struct(kind):
        return JsonText(_struct_text(column), is_bare=False)
    return JsonText(column.cast(pa.string()), is_bare=False)


def object_pieces(names: Sequence[str], texts: Iterable[JsonText]) -> list[Piece]:
    """`{"a":`, a column, `,"b":`, another column, `}`."""
    pieces: list[Piece] = ["{"]
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        pieces.append(f"{',' if place else ''}{quote(name)}:")
        pieces += value_pieces(text)
    return [*pieces, "}"]


def value_pieces(text: JsonText) -> list[Piece]:
    if not text.is_bare:
        return [text.column]
    if text.column.null_count:
        return [whole(text)]
    return ['"', text.column, '"']


def whole(text: JsonText) -> pa.Array:
    """Whole JSON values, null where the column is."""
    if not text.is_bare:
        return text.column
    return pc.binary_join_element_wise('"', text.column, '"', EMPTY)


def join(pieces: Sequence[Piece], row_count: int) -> pa.Array:
    """All pieces of a row behind each other, row for row."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if len(merged) == 1 and isinstance(merged[0], str):
        return pa.repeat(pa.scalar(merged[0], pa.string()), row_count)
    return pc.binary_join_element_wise(
        *merged, EMPTY, null_handling="replace", null_replacement=NULL
    )


def escape(column: pa.Array) -> pa.Array:
    """The column itself when it holds nothing that JSON escapes, which is found by one scan."""
    if not len(column):
        return column
    data, offsets = stretches(column)
    places = _escaped_places(data)
    if not len(places):
        return column
    codes = data[places]
    widths = _WIDTHS[codes].astype(np.int64)
    grown = np.concatenate(([0], np.cumsum(widths - 1)))
    text = _spread(data, places, widths, codes, grown)
    ends = offsets + grown[np.searchsorted(places, offsets)]
    return column_of(pa.string(), text, ends, like=column)


def _escaped_places(data: Bytes) -> Int64s:
    is_escaped = data == QUOTE
    is_escaped |= data == BACKSLASH
    is_escaped |= data < FIRST_PRINTABLE
    return np.flatnonzero(is_escaped)


def _spread(data: Bytes, places: Int64s, widths: Int64s, codes: Bytes, grown: Int64s) -> Bytes:
    """Makes room for every escape, and writes it there."""
    text: Bytes = np.empty(len(data) + int(grown[-1]), np.uint8)
    is_copied, starts = np.ones(len(text), np.bool_), places + grown[:-1]
    for step in range(1, int(widths.max())):
        longer = starts if step == 1 else starts[widths > step]
        is_copied[longer + step] = False
    text[is_copied] = data
    text[starts] = BACKSLASH
    is_short = widths == 2
    if is_short.all():
        text[starts + 1] = _LETTERS[codes]
        return text
    text[starts[is_short] + 1] = _LETTERS[codes[is_short]]
    long_starts, long_codes = starts[~is_short], codes[~is_short]
    for offset in range(1, LONG_WIDTH):
        text[long_starts + offset] = _LONG[long_codes, offset]
    return text


def _widths() -> Bytes:
    widths = np.ones(256, np.uint8)
    widths[:FIRST_PRINTABLE] = LONG_WIDTH
    widths[list(SHORT_ESCAPES)] = 2
    return widths


def _letters() -> Bytes:
    letters = np.zeros(256, np.uint8)
    letters[list(SHORT_ESCAPES)] = [ord(letter) for letter in SHORT_ESCAPES.values()]
    return letters


_WIDTHS, _LETTERS = _widths(), _letters()
_LONG = np.array(
    [list(rf"\u{code:04X}".encode()) for code in range(FIRST_PRINTABLE)], dtype=np.uint8
)


def _float_text(column: pa.Array) -> pa.Array:
    """The fewest digits that name the number, laid out as Java lays them out."""
    text = column.cast(pa.string())
    numbers = column.fill_null(0.5).to_numpy()
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        for found, spelled in (
            (np.isnan(numbers), '"NaN"'),
            (numbers == np.inf, '"Infinity"'),
            (numbers == -np.inf, '"-Infinity"'),
        ):
            text = pc.if_else(pa.array(found), spelled, text)
    sizes = np.abs(np.where(is_finite, numbers, 0.5))
    is_far = ((sizes < PLAIN_MIN) | (sizes >= PLAIN_MAX)) & (sizes != 0)
    lacks_point = ~is_far & is_finite & (numbers == np.trunc(numbers))
    if lacks_point.any():
        lacks_point &= ~pc.match_substring(text, ".").fill_null(True).to_numpy(False)
        pointed = pc.binary_join_element_wise(text, ".0", EMPTY)
        text = pc.if_else(pa.array(lacks_point), pointed, text)
    if is_far.any():
        mask = pa.array(is_far)
        text = pc.replace_with_mask(text, mask, _scientific(text.filter(mask)))
    return text


def _scientific(text: pa.Array) -> pa.Array:
    """`1.2345678925E8` of `123456789.25`, `1.0E-5` of `0.00001`."""
    parts = pc.extract_regex(text, FLOAT)
    sign, whole, fraction, exponent = (
        pc.struct_field(parts, name) for name in ("sign", "whole", "fraction", "exponent")
    )
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    given = pc.if_else(pc.equal(exponent, ""), "0", exponent).cast(pa.int32())
    power = pc.subtract(pc.add(given, pc.subtract(pc.binary_length(whole), 1)), zeros)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), "0")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(significant, 0, 1), ".",
        pc.if_else(pc.equal(rest, ""), "0", rest), "E", power.cast(pa.string()), EMPTY,
    )  # fmt: skip


def _list_text(column: pa.Array) -> pa.Array:
    items = whole(json_text(column.flatten())).fill_null(NULL)
    counts = pc.list_value_length(column).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    text = pc.binary_join_element_wise("[", joined, "]", EMPTY)
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _struct_text(column: pa.Array) -> pa.Array:
    names = [member.name for member in column.type]
    texts = [json_text(member) for member in column.flatten()]
    text = join(object_pieces(names, texts), len(column))
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text
