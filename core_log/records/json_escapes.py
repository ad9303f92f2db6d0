"""Escapes in JSON strings, as Jackson and therefore Debezium write them."""

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of

BACKSLASH, QUOTE, FIRST_PRINTABLE = ord("\\"), ord('"'), 0x20
SHORT_ESCAPES = {QUOTE: '"', BACKSLASH: "\\", 8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}
LONG_WIDTH = 6  # \u001F
ESCAPES = {code: rf"\u{code:04X}" for code in range(FIRST_PRINTABLE)} | {
    code: f"\\{letter}" for code, letter in SHORT_ESCAPES.items()
}
"""Escapes with hexadecimal digits in upper case."""


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
