"""Cells of a row behind each other, compiled: every byte goes straight to where it stays."""

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from core_log.joining import Kind, Piece, join_plainly, merged
from core_log.rows.json_escapes import LETTERS, LONG, LONG_WIDTH, QUOTE, WIDTHS
from core_log.varint import Int64s

KIND, DATA, OFFSETS, VALID, FIRST, SIZE = range(6)
"""Of a piece: what it is; addresses of its bytes or numbers, of its offsets, and of the bitmap of
what is not null; the first value's place in bitmaps; of what all rows share how long it is."""
CONSTANT = max(Kind) + 1
RAW, STRING, INTEGER, BOOLEAN, VARINT = (int(each) for each in Kind)
ROOM = {RAW: 4, STRING: 4, INTEGER: 20, BOOLEAN: 5, VARINT: 10}
"""The most that a value takes, beside its text."""
BYTES_MAX = 2**31 - 1
SLACK_BYTES = 64
"""A word may be written whole where only a part of it counts."""
GROWTH_MIN = 4 << 10
LONGEST_ESCAPE = 6

ONES, TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES = ONES * np.uint64(0x22), ONES * np.uint64(0x5C)
SPACES = ONES * np.uint64(0x20)
BACKSLASH, MINUS, ZERO = np.uint8(0x5C), np.uint8(0x2D), np.uint8(0x30)
QUOTE_BYTE = np.uint8(QUOTE)
NULL, TRUE, FALS, E = (
    np.uint32(int.from_bytes(b"null", "little")),
    np.uint32(int.from_bytes(b"true", "little")),
    np.uint32(int.from_bytes(b"fals", "little")),
    np.uint8(ord("e")),
)
PAIRS = np.array([int.from_bytes(b"%02d" % each, "little") for each in range(100)], np.uint16)
SCRATCH_BYTES = 24

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(
    cache=True, nogil=True, boundscheck=False
)


def _loader(bits: int, kind: Any) -> Any:
    def load(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(place, align=1)

        return kind(types.int64), generate

    return intrinsic(load)


def _storer(bits: int, kind: Any) -> Any:
    def store(context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(arguments[1], place, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return intrinsic(store)


load8, load32, load64 = (
    _loader(8, types.uint8),
    _loader(32, types.int32),
    _loader(64, types.uint64),
)
store8, store16 = _storer(8, types.uint8), _storer(16, types.uint16)
store32, store64 = _storer(32, types.uint32), _storer(64, types.uint64)


def join_compiled(pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """As `join_plainly` does it. What is too much for one column is left to that to refuse."""
    held, about = _about(merged(pieces))
    texts = int(_text_bytes(about, rows))
    size = int(about[:, SIZE].sum()) * rows + texts
    offsets, scratch = np.empty(rows + 1, np.int32), np.empty(SCRATCH_BYTES, np.uint8)
    out, row, at, spare = np.empty(0, np.uint8), 0, 0, GROWTH_MIN
    while row < rows:
        if size + spare > BYTES_MAX:
            return join_plainly(pieces, rows, kind, null)
        larger = np.empty(size + spare + SLACK_BYTES, np.uint8)
        larger[:at] = out[:at]
        out = larger
        row, at = _join(
            about, rows, row, at, out.ctypes.data, size + spare, offsets, scratch.ctypes.data,
            bool(null),
        )  # fmt: skip
        spare = max(4 * spare, texts)
    del held
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _about(pieces: Sequence[Piece]) -> tuple[list[Any], Int64s]:
    """What each piece is; and what must be kept until they are written."""
    held: list[Any] = []
    about = np.zeros((len(pieces), 6), np.int64)
    for place, piece in enumerate(pieces):
        if isinstance(piece, bytes):
            constant = np.frombuffer(piece + bytes(8), np.uint8)
            held.append(constant)
            about[place] = (CONSTANT, constant.ctypes.data, 0, 0, 0, len(piece))
            continue
        column, kind = piece
        if kind in (INTEGER, VARINT) and column.type != pa.int64():
            column = column.cast(pa.int64())
        held.append(column)
        buffers = column.buffers()
        first = column.offset
        valid = buffers[0].address if column.null_count else 0
        if kind in (RAW, STRING):
            data = buffers[2].address if buffers[2] is not None else 0
            offsets = buffers[1].address + 4 * first
            about[place] = (kind, data, offsets, valid, first, ROOM[kind])
        elif kind == BOOLEAN:
            about[place] = (kind, buffers[1].address, 0, valid, first, ROOM[kind])
        else:
            about[place] = (kind, buffers[1].address + 8 * first, 0, valid, first, ROOM[kind])
    return held, about


@_compiled
def _text_bytes(about: Int64s, rows: int) -> Any:
    total = 0
    for piece in range(len(about)):
        if about[piece, KIND] == RAW or about[piece, KIND] == STRING:
            offsets = about[piece, OFFSETS]
            total += load32(offsets + 4 * rows) - load32(offsets)
    return total


@_compiled
def _join(  # noqa: C901 - another call for every value would cost more than the value
    about: Int64s, rows: int, row: int, at: int, out: int, limit: int, offsets: Any,
    scratch: int, has_null: bool,
) -> Any:  # fmt: skip
    """From `row` on, whose bytes begin at `at`; returns where it stopped for want of room. Escapes
    alone can need more than the caller reckoned with, so that only they are counted."""
    grown = 0
    spare = limit - at
    for piece in range(len(about)):
        spare -= about[piece, SIZE] * (rows - row)
        if about[piece, KIND] == RAW or about[piece, KIND] == STRING:
            ends = about[piece, OFFSETS]
            spare -= load32(ends + 4 * rows) - load32(ends + 4 * row)
    for each in range(row, rows):
        start = at
        offsets[each] = start
        for piece in range(len(about)):
            kind, data = about[piece, KIND], about[piece, DATA]
            if kind == CONSTANT:
                size = about[piece, SIZE]
                for done in range(0, size, 8):
                    store64(out + at + done, load64(data + done))
                at += size
                continue
            if about[piece, VALID] and not _bit(about[piece, VALID], about[piece, FIRST] + each):
                if has_null:
                    store32(out + at, NULL)
                    at += 4
                continue
            if kind == RAW:
                begin = load32(about[piece, OFFSETS] + 4 * each)
                size = load32(about[piece, OFFSETS] + 4 * each + 4) - begin
                _copy(data + begin, out + at, size)
                at += size
            elif kind == STRING:
                begin = load32(about[piece, OFFSETS] + 4 * each)
                size = load32(about[piece, OFFSETS] + 4 * each + 4) - begin
                store8(out + at, QUOTE_BYTE)
                if _copy_seeing(data + begin, out + at + 1, size):
                    grown += (LONGEST_ESCAPE - 1) * size
                    if grown > spare:
                        return each, start
                    size = _escape(data + begin, out + at + 1, size)
                store8(out + at + 1 + size, QUOTE_BYTE)
                at += size + 2
            elif kind == INTEGER:
                at += _digits(load64(data + 8 * each), out + at, scratch)
            elif kind == BOOLEAN:
                if _bit(data, about[piece, FIRST] + each):
                    store32(out + at, TRUE)
                    at += 4
                else:
                    store32(out + at, FALS)
                    store8(out + at + 4, E)
                    at += 5
            else:
                at += _varint(load64(data + 8 * each), out + at)
    offsets[rows] = at
    return rows, at


@_compiled
def _bit(bitmap: int, place: int) -> Any:
    return (load8(bitmap + (place >> 3)) >> np.uint8(place & 7)) & np.uint8(1)


@_compiled
def _copy(source: int, to: int, count: int) -> None:
    """Reads and writes nothing beyond; the last word overlaps the one before."""
    if count >= 8:
        for done in range(0, count - 8, 8):
            store64(to + done, load64(source + done))
        store64(to + count - 8, load64(source + count - 8))
    else:
        for done in range(count):
            store8(to + done, load8(source + done))


@_compiled
def _copy_seeing(source: int, to: int, count: int) -> Any:
    """The same; true where JSON escapes one of these bytes."""
    seen = np.uint64(0)
    if count >= 8:
        for done in range(0, count - 8, 8):
            word = load64(source + done)
            seen |= _escaped(word)
            store64(to + done, word)
        word = load64(source + count - 8)
        seen |= _escaped(word)
        store64(to + count - 8, word)
        return seen != 0
    is_escaped = False
    for done in range(count):
        byte = load8(source + done)
        is_escaped |= WIDTHS[byte] != 1
        store8(to + done, byte)
    return is_escaped


@_compiled
def _escaped(word: Any) -> Any:
    """Not zero where one of eight bytes is a quote, a backslash or below the space."""
    low = (word - SPACES) & ~word
    quote, backslash = word ^ QUOTES, word ^ BACKSLASHES
    low |= (quote - ONES) & ~quote
    low |= (backslash - ONES) & ~backslash
    return low & TOPS


@_compiled
def _escape(source: int, to: int, count: int) -> Any:
    at = to
    for done in range(count):
        byte = load8(source + done)
        width = WIDTHS[byte]
        if width == 1:
            store8(at, byte)
        elif width == LONG_WIDTH:
            for place in range(LONG_WIDTH):
                store8(at + place, LONG[byte, place])
        else:
            store8(at, BACKSLASH)
            store8(at + 1, LETTERS[byte])
        at += width
    return at - to


@_compiled
def _digits(number: Any, to: int, scratch: int) -> Any:
    """From the last pair of digits on into the scratch, and from there to their place."""
    sign = 0
    if np.int64(number) < 0:
        store8(to, MINUS)
        number = np.uint64(0) - number
        sign = 1
    at = SCRATCH_BYTES
    while number >= np.uint64(100):
        rest = number // np.uint64(100)
        at -= 2
        store16(scratch + at, PAIRS[number - rest * np.uint64(100)])
        number = rest
    if number >= np.uint64(10):
        at -= 2
        store16(scratch + at, PAIRS[number])
    else:
        at -= 1
        store8(scratch + at, ZERO + np.uint8(number))
    count = SCRATCH_BYTES - at
    _copy(scratch + at, to + sign, count)
    return sign + count


@_compiled
def _varint(number: Any, to: int) -> Any:
    rest = (number << np.uint64(1)) ^ np.uint64(np.int64(number) >> np.int64(63))
    at = to
    while rest >= np.uint64(0x80):
        store8(at, np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80))
        rest >>= np.uint64(7)
        at += 1
    store8(at, np.uint8(rest))
    return at + 1 - to
