"""Compiled join of the parts of rows: every byte is written directly to its final place."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.compiled.object_cache import CompiledFunction, late
from headwater.core_log.compiled.row_writer_arguments import (
    BOOLEAN,
    CONSTANT,
    DATA,
    DECIMAL,
    FIRST,
    FLOAT,
    INDEXES,
    INTEGER,
    KIND,
    OFFSETS,
    RAW,
    SCALE,
    SIZE,
    STRING,
    VALID,
    VARINT,
    table_of,
)
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.records.row_writer import (
    LETTERS,
    LONG,
    LONG_WIDTH,
    QUOTE,
    WIDTHS,
    RowPart,
    join_plainly,
    merge_constants,
)

LARGE_BYTES = 1 << 20
"""The allocator itself keeps smaller blocks."""
KEPT_BYTES_MAX = 24 << 20
STEP_BYTES = 1 << 20
TIMES_LARGER_MAX = 2


class BufferPool:
    """A pool of buffers. A buffer's reference count says whether it is in use: Arrow's columns and
    their slices hold references as long as they live."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[UInt8Array] = []
        self._choosing = threading.Lock()

    def of(self, size: int) -> UInt8Array:
        """Returns a buffer of at least that many bytes, with undefined content."""
        if size < LARGE_BYTES:
            return np.empty(size, np.uint8)
        with self._choosing:
            for index, held in enumerate(map(len, self._kept)):
                fits = size <= held <= TIMES_LARGER_MAX * size
                if fits and _references(self._kept, index) == UNUSED:
                    return self._kept[index]
            made: UInt8Array = np.empty(-(-size // STEP_BYTES) * STEP_BYTES, np.uint8)
            self._kept.append(made)
            while sum(map(len, self._kept)) > self._kept_bytes_max:
                del self._kept[0]  # a buffer in use is freed when its use ends
            return made

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._kept))


def _references(kept: list[UInt8Array], index: int) -> int:
    return sys.getrefcount(kept[index])


UNUSED = _references([np.empty(1, np.uint8)], 0)
"""Reference count of an object that only a list holds; it depends on the interpreter."""


BYTES_MAX = 2**31 - 1
SLACK_BYTES = 64
"""Space for a whole word of which only a part counts."""
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
SCRATCH_BYTES = 48
POINT, COLON, HYPHEN, LARGE_T, LARGE_Z = (np.uint8(each) for each in b".:-TZ")
DAY_S, DAY_0, CYCLE_DAYS = 86_400, 719_468, 146_097
"""Days from 1 March of the year 0 to 1970; the calendar repeats after 400 years."""

_memory = BufferPool()

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


def _loader(bits: int, kind: str) -> Any:
    """Returns a function that reads at an address."""

    def make() -> Any:
        from llvmlite import ir
        from numba.core import types
        from numba.extending import intrinsic

        def load(context: Any, address: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                index = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
                return builder.load(index, align=1)

            return getattr(types, kind)(types.int64), generate

        return intrinsic(load)

    return late(f"load {bits} as {kind}", make)


def _storer(bits: int, kind: str) -> Any:
    """Returns a function that writes at an address."""

    def make() -> Any:
        from llvmlite import ir
        from numba.core import types
        from numba.extending import intrinsic

        def store(context: Any, address: Any, value: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                index = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
                builder.store(arguments[1], index, align=1)
                return context.get_dummy_value()

            return types.void(types.int64, getattr(types, kind)), generate

        return intrinsic(store)

    return late(f"store {bits} of {kind}", make)


load8, load32, load64 = _loader(8, "uint8"), _loader(32, "int32"), _loader(64, "uint64")
store8, store16 = _storer(8, "uint8"), _storer(16, "uint16")
store32, store64 = _storer(32, "uint32"), _storer(64, "uint64")


def join_compiled(parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Joins like `join_plainly`, which also gets (and refuses) what is too large for one column."""
    held, about = table_of(merge_constants(parts))
    texts = int(_text_bytes(about, rows))
    size = int(about[:, SIZE].sum()) * rows + texts
    offsets, scratch = np.zeros(rows + 1, np.int32), np.empty(SCRATCH_BYTES, np.uint8)
    out, row, at, spare = np.empty(0, np.uint8), 0, 0, GROWTH_MIN
    while row < rows:
        if size + spare > BYTES_MAX:
            return join_plainly(parts, rows, kind, null)
        larger = _memory.of(size + spare + SLACK_BYTES)
        larger[:at] = out[:at]
        out = larger
        row, at = _join(
            about, rows, row, at, out.ctypes.data, size + spare, offsets, scratch.ctypes.data,
            bool(null),
        )  # fmt: skip
        spare = max(4 * spare, texts)
    del held
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


@_compiled
def _text_bytes(about: Int64Array, rows: int) -> Any:
    total = 0
    for part in range(len(about)):
        if about[part, OFFSETS] and not about[part, INDEXES]:
            offsets = about[part, OFFSETS]
            total += load32(offsets + 4 * rows) - load32(offsets)
    return total


@_compiled
def _join(  # noqa: C901, PLR0915 - another call for every value would cost more than the value
    about: Int64Array, rows: int, row: int, at: int, out: int, limit: int, offsets: Any,
    scratch: int, has_null: bool,
) -> Any:  # fmt: skip
    """Writes rows from `row` on, starting at `at`; returns the row at which room ran out. Only
    escapes can need more than the caller reserved, so only they are counted."""
    grown = 0
    spare = limit - at
    for part in range(len(about)):
        spare -= about[part, SIZE] * (rows - row)
        if about[part, OFFSETS] and not about[part, INDEXES]:
            ends = about[part, OFFSETS]
            spare -= load32(ends + 4 * rows) - load32(ends + 4 * row)
    for each in range(row, rows):
        start = at
        offsets[each] = start
        for part in range(len(about)):
            kind, data = about[part, KIND], about[part, DATA]
            if kind == CONSTANT:
                size = about[part, SIZE]
                for done in range(0, size, 8):
                    store64(out + at + done, load64(data + done))
                at += size
                continue
            if about[part, VALID] and not _bit(about[part, VALID], about[part, FIRST] + each):
                if has_null:
                    store32(out + at, NULL)
                    at += 4
                continue
            if kind == RAW:
                value = about[part, OFFSETS] + 4 * each
                if about[part, INDEXES]:
                    value = about[part, OFFSETS] + 4 * np.int64(
                        load64(about[part, INDEXES] + 8 * each)
                    )
                begin = load32(value)
                size = load32(value + 4) - begin
                _copy(data + begin, out + at, size)
                at += size
            elif kind == STRING:
                begin = load32(about[part, OFFSETS] + 4 * each)
                size = load32(about[part, OFFSETS] + 4 * each + 4) - begin
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
                if _bit(data, about[part, FIRST] + each):
                    store32(out + at, TRUE)
                    at += 4
                else:
                    store32(out + at, FALS)
                    store8(out + at + 4, E)
                    at += 5
            elif kind == VARINT:
                at += _varint(load64(data + 8 * each), out + at)
            elif kind == DECIMAL:
                number = load64(data + 16 * each)
                at += _decimal(number, about[part, SCALE], out + at, scratch)
            elif kind == FLOAT:
                at += _float(load64(data + 8 * each), about[part, SCALE], out + at, scratch)
            else:
                at += _moment(np.int64(load64(data + 8 * each)), about[part, SCALE], out + at)
    offsets[rows] = at
    return rows, at


@_compiled
def _bit(bitmap: int, index: int) -> Any:
    return (load8(bitmap + (index >> 3)) >> np.uint8(index & 7)) & np.uint8(1)


@_compiled
def _copy(source: int, to: int, count: int) -> None:
    """Copies without reading or writing beyond the end; the last word overlaps the one before."""
    if count >= 8:
        for done in range(0, count - 8, 8):
            store64(to + done, load64(source + done))
        store64(to + count - 8, load64(source + count - 8))
    else:
        for done in range(count):
            store8(to + done, load8(source + done))


@_compiled
def _copy_seeing(source: int, to: int, count: int) -> Any:
    """Copies in the same way; returns True if JSON escapes one of these bytes."""
    seen = np.uint64(0)
    if count >= 8:
        for done in range(0, count - 8, 8):
            word = load64(source + done)
            seen |= _has_escape(word)
            store64(to + done, word)
        word = load64(source + count - 8)
        seen |= _has_escape(word)
        store64(to + count - 8, word)
        return seen != 0
    is_escaped = False
    for done in range(count):
        byte = load8(source + done)
        is_escaped |= WIDTHS[byte] != 1
        store8(to + done, byte)
    return is_escaped


@_compiled
def _has_escape(word: Any) -> Any:
    """Returns non-zero if one of eight bytes is a quote, a backslash or below the space."""
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
            for index in range(LONG_WIDTH):
                store8(at + index, LONG[byte, index])
        else:
            store8(at, BACKSLASH)
            store8(at + 1, LETTERS[byte])
        at += width
    return at - to


@_compiled
def _backwards(number: Any, scratch: int) -> Any:
    """Writes digits backwards, ending with the scratch; returns where they begin."""
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
    return at


@_compiled
def _digits(number: Any, to: int, scratch: int) -> Any:
    sign = 0
    if np.int64(number) < 0:
        store8(to, MINUS)
        number = np.uint64(0) - number
        sign = 1
    at = _backwards(number, scratch)
    _copy(scratch + at, to + sign, SCRATCH_BYTES - at)
    return sign + SCRATCH_BYTES - at


@_compiled
def _decimal(number: Any, scale: int, to: int, scratch: int) -> Any:
    store8(to, QUOTE_BYTE)
    end = to + 1
    if np.int64(number) < 0:
        store8(end, MINUS)
        number = np.uint64(0) - number
        end += 1
    at = _backwards(number, scratch)
    point = SCRATCH_BYTES - scale
    while at >= point:
        at -= 1
        store8(scratch + at, ZERO)
    _copy(scratch + at, end, point - at)
    end += point - at
    if scale:
        store8(end, POINT)
        _copy(scratch + point, end + 1, scale)
        end += 1 + scale
    store8(end, QUOTE_BYTE)
    return end + 1 - to


@_compiled
def _float(number: Any, scale: int, to: int, scratch: int) -> Any:
    """Writes a float without trailing zeros, except the first digit after the point."""
    end = to
    if np.int64(number) < 0:
        store8(end, MINUS)
        number = np.uint64(0) - number
        end += 1
    at = _backwards(number, scratch)
    point, last = SCRATCH_BYTES - scale, SCRATCH_BYTES
    while at >= point:
        at -= 1
        store8(scratch + at, ZERO)
    while last > point + 1 and load8(scratch + last - 1) == ZERO:
        last -= 1
    _copy(scratch + at, end, point - at)
    end += point - at
    store8(end, POINT)
    _copy(scratch + point, end + 1, last - point)
    return end + 1 + last - point - to


@_compiled
def _moment(number: int, digits: int, to: int) -> Any:
    """Writes a timestamp with a year of four digits. Months are counted from March, so that the
    leap day is the last one."""
    per_second = 1_000_000 if digits == 6 else 1_000
    seconds = number // per_second
    fraction = number - seconds * per_second
    days = seconds // DAY_S
    clock = seconds - days * DAY_S
    days += DAY_0
    cycle = days // CYCLE_DAYS
    day = days - cycle * CYCLE_DAYS
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * cycle + (1 if month <= 2 else 0)
    store8(to, QUOTE_BYTE)
    store16(to + 1, PAIRS[year // 100])
    store16(to + 3, PAIRS[year % 100])
    store8(to + 5, HYPHEN)
    store16(to + 6, PAIRS[month])
    store8(to + 8, HYPHEN)
    store16(to + 9, PAIRS[day])
    store8(to + 11, LARGE_T)
    store16(to + 12, PAIRS[clock // 3_600])
    store8(to + 14, COLON)
    store16(to + 15, PAIRS[clock // 60 % 60])
    store8(to + 17, COLON)
    store16(to + 18, PAIRS[clock % 60])
    store8(to + 20, POINT)
    at = to + 21
    if digits == 6:
        store16(at, PAIRS[fraction // 10_000])
        store16(at + 2, PAIRS[fraction // 100 % 100])
        store16(at + 4, PAIRS[fraction % 100])
    else:
        store8(at, ZERO + np.uint8(fraction // 100))
        store16(at + 1, PAIRS[fraction % 100])
    at += digits
    store8(at, LARGE_Z)
    store8(at + 1, QUOTE_BYTE)
    return at + 2 - to


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
