"""Writes the server's text of binary JSON documents, compiled; what is rare is left to Python."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array

LARGE_ARRAY, LITERAL, INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = range(3, 13)
SMALL_ARRAY, OPAQUE, NEWDECIMAL = 2, 15, 246
DEPTH_MAX = 100
ENTRY_BYTES_MIN = 3
GROWTH, ROOM_BYTES = 6, 64
"""A text has at most so many times the bytes of its document, and these."""
BASE, IS_LARGE, IS_OBJECT, COUNT, INDEX = range(5)
"""Columns of the stack of open objects and arrays."""
STACK_WIDTH = 5
QUOTE, BACKSLASH, COMMA, COLON, SPACE, MINUS, POINT, ZERO = b'"\\,: -.0'
OPENS, CLOSES = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)
WORDS = np.frombuffer(b"null\0true\0false", np.uint8)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
LETTERS = np.zeros(256, np.uint8)
"""The letter of an escape; 0 if it is one of a number, 1 if nothing is escaped."""
LETTERS[32:] = 1
for _byte, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    LETTERS[_byte] = _letter
DIGITS_MAX = 20
EXACT_MAX = 10**15
"""Fifteen digits are always those of one double, and its shortest ones."""
FRACTION_MAX = 15
GROUP, PRECISION_MAX = 9, 65
"""Digits of a decimal that lie in four bytes together, and the most that it has."""
DIGITS_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
POWERS = 10 ** np.arange(GROUP + 1, dtype=np.int64)

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


def write_documents(
    data: UInt8Array, offsets: Int64Array
) -> tuple[UInt8Array, Int64Array, BoolArray]:
    """Returns the texts as bytes with their offsets, and which documents were left out."""
    rows = len(offsets) - 1
    room = np.empty(GROWTH * len(data) + ROOM_BYTES * rows + DIGITS_MAX, np.uint8)
    ends, is_hard = np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_)
    bits = np.zeros(1, np.int64)
    stack = np.zeros((DEPTH_MAX, STACK_WIDTH), np.int64)
    _write(data, offsets, room, ends, is_hard, stack, bits, bits.view(np.float64))
    return room[: ends[-1]], ends, is_hard


@_compiled
def _write(
    data: UInt8Array,
    offsets: Int64Array,
    room: UInt8Array,
    ends: Int64Array,
    is_hard: Any,
    stack: Any,
    bits: Int64Array,
    doubles: Any,
) -> None:
    at = 0
    for row in range(len(is_hard)):
        begin, end = offsets[row], offsets[row + 1]
        after: Any = -1
        if begin < end:
            limit = at + GROWTH * (end - begin) + ROOM_BYTES
            after = _document(data, begin, end, room, at, limit, stack, bits, doubles)
        if after < 0:
            is_hard[row] = True
        else:
            at = after
        ends[row + 1] = at


@_compiled
def _document(  # noqa: C901 - one loop over a grammar
    data: UInt8Array,
    begin: int,
    end: int,
    room: UInt8Array,
    at: int,
    limit: int,
    stack: Any,
    bits: Int64Array,
    doubles: Any,
) -> Any:
    """Returns the end of its text; -1 if it has something rare, or is broken."""
    kind, pos, depth = np.int64(data[begin]), begin + 1, 0
    left = (end - begin) // ENTRY_BYTES_MIN + 1
    while True:
        if at + ROOM_BYTES // 2 > limit:
            return -1
        if kind <= LARGE_ARRAY:
            is_large, is_object = kind & 1, np.int64(kind < SMALL_ARRAY)
            width = 2 + 2 * is_large
            if depth == DEPTH_MAX or pos + 2 * width > end:
                return -1
            count: Any = _number(data, pos, width)
            left -= count
            if left < 0 or pos + 2 * width + count * (1 + width + is_object * (width + 2)) > end:
                return -1
            room[at] = OPENS[is_object]
            at += 1
            stack[depth, BASE], stack[depth, IS_LARGE] = pos, is_large
            stack[depth, IS_OBJECT], stack[depth, COUNT], stack[depth, INDEX] = is_object, count, 0
            depth += 1
        else:
            at = _scalar(data, kind, pos, end, room, at, limit, bits, doubles)
            if at < 0:
                return -1
        while depth and stack[depth - 1, INDEX] == stack[depth - 1, COUNT]:
            depth -= 1
            if at >= limit:
                return -1
            room[at] = CLOSES[stack[depth, IS_OBJECT]]
            at += 1
        if not depth:
            return at
        base, index = stack[depth - 1, BASE], stack[depth - 1, INDEX]
        is_large, is_object = stack[depth - 1, IS_LARGE], stack[depth - 1, IS_OBJECT]
        count, width = stack[depth - 1, COUNT], 2 + 2 * is_large
        stack[depth - 1, INDEX] += 1
        if at + 2 > limit:
            return -1
        if index:
            room[at], room[at + 1] = COMMA, SPACE
            at += 2
        entries = base + 2 * width
        if is_object:
            entry = entries + index * (width + 2)
            name = base + _number(data, entry, width)
            at = _string(data, name, _number(data, entry + width, 2), end, room, at, limit)
            if at < 0 or at + 2 > limit:
                return -1
            room[at], room[at + 1] = COLON, SPACE
            at += 2
            entries += count * (width + 2)
        entry = entries + index * (1 + width)
        kind = np.int64(data[entry])
        is_inline = LITERAL <= kind <= UINT16 or (is_large and (kind in (INT32, UINT32)))
        pos = entry + 1 if is_inline else base + _number(data, entry + 1, width)


@_compiled
def _number(data: UInt8Array, at: int, width: int) -> Any:
    found = np.int64(0)
    for place in range(width):
        found |= np.int64(data[at + place]) << (8 * place)
    return found


@_compiled
def _scalar(
    data: UInt8Array,
    kind: int,
    pos: int,
    end: int,
    room: UInt8Array,
    at: int,
    limit: int,
    bits: Int64Array,
    doubles: Any,
) -> Any:
    """Writes one value; the caller has left room for a number."""
    if kind == LITERAL:
        return _literal(data[pos], room, at) if pos < end else -1
    if kind == STRING:
        length, shift = np.int64(0), 0
        while pos < end and shift < 35:
            byte = np.int64(data[pos])
            length |= (byte & 0x7F) << shift
            pos += 1
            if byte < 0x80:
                return _string(data, pos, length, end, room, at, limit)
            shift += 7
        return -1
    if kind == DOUBLE:
        if pos + 8 > end:
            return -1
        bits[0] = _number(data, pos, 8)
        return _double(doubles[0], bits[0] < 0, room, at)
    if kind == OPAQUE:
        return _decimal(data, pos, end, room, at, limit)
    return _integer(data, kind, pos, end, room, at) if INT16 <= kind <= UINT64 else -1


@_compiled
def _decimal(data: UInt8Array, pos: int, end: int, room: UInt8Array, at: int, limit: int) -> Any:
    """Writes a decimal; -1 for another value of SQL, and for one that is broken."""
    if pos + 4 > end or data[pos] != NEWDECIMAL:
        return -1
    length, precision = np.int64(data[pos + 1]), np.int64(data[pos + 2])
    part = np.int64(data[pos + 3])
    whole, pos = precision - part, pos + 4
    if whole < 0 or precision > PRECISION_MAX or at + precision + 3 > limit:
        return -1
    width = 4 * (whole // GROUP + part // GROUP)
    width += DIGITS_BYTES[whole % GROUP] + DIGITS_BYTES[part % GROUP]
    if not width or length != width + 2 or pos + width > end:
        return -1
    mask = np.int64(0)
    if data[pos] < 0x80:
        mask = np.int64(0xFF)
        room[at] = MINUS
        at += 1
    first = at
    at = _groups(data, pos, whole, mask ^ 0x80, mask, room, at, False)
    if at < 0:
        return -1
    if at == first:
        room[at] = ZERO
        at += 1
    if not part:
        return at
    room[at] = POINT
    pos += 4 * (whole // GROUP) + DIGITS_BYTES[whole % GROUP]
    return _groups(data, pos, part, mask if whole else mask ^ 0x80, mask, room, at + 1, True)


@_compiled
def _groups(
    data: UInt8Array, pos: int, left: int, flip: int, mask: int, room: UInt8Array, at: int,
    is_part: bool,
) -> Any:  # fmt: skip
    """Writes the digits before the point, without zeros in front, or all behind it."""
    first = at
    while left:
        digits = min(left, GROUP) if is_part or left % GROUP == 0 else left % GROUP
        value = np.int64(0)
        for _ in range(DIGITS_BYTES[digits]):
            value = value << 8 | (np.int64(data[pos]) ^ flip)
            flip = mask
            pos += 1
        if value >= POWERS[digits]:
            return -1
        for place in range(digits - 1, -1, -1):
            digit = value // POWERS[place] % 10
            if digit or is_part or at > first:
                room[at] = np.uint8(digit) + np.uint8(ZERO)
                at += 1
        left -= digits
    return at


@_compiled
def _integer(data: UInt8Array, kind: int, pos: int, end: int, room: UInt8Array, at: int) -> Any:
    width = 2 if kind <= UINT16 else 4 if kind <= UINT32 else 8
    if pos + width > end:
        return -1
    value = _number(data, pos, width)
    is_signed = kind in (INT16, INT32, INT64)
    if is_signed and width < 8 and value >> (8 * width - 1):
        value -= np.int64(1) << (8 * width)
    if is_signed and value < 0:
        room[at] = MINUS
        return _digits(np.uint64(0) - np.uint64(value), room, at + 1)
    return _digits(np.uint64(value), room, at)


@_compiled
def _literal(which: int, room: UInt8Array, at: int) -> Any:
    if which > 2:
        return -1
    for place in range(5 * which, 5 * which + (5 if which == 2 else 4)):
        room[at] = WORDS[place]
        at += 1
    return at


@_compiled
def _digits(number: Any, room: UInt8Array, at: int) -> Any:
    size, rest = 1, number
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        size += 1
    for place in range(at + size - 1, at - 1, -1):
        rest = number // np.uint64(10)
        room[place] = np.uint8(number - rest * np.uint64(10)) + np.uint8(ZERO)
        number = rest
    return at + size


@_compiled
def _double(value: Any, is_negative: bool, room: UInt8Array, at: int) -> Any:
    """Writes the shortest digits, if a quotient of whole numbers is this very double."""
    size = abs(value)
    if not size < EXACT_MAX:
        return -1
    if is_negative:
        room[at] = MINUS
        at += 1
    power = 1.0
    for digits in range(FRACTION_MAX + 1):
        scaled = size * power
        if not scaled < EXACT_MAX:
            return -1
        whole = np.int64(scaled + 0.5)
        if whole / power == size:
            after: Any = _digits(np.uint64(whole // np.int64(power)), room, at)
            room[after] = POINT
            after += 1
            part = whole % np.int64(power)
            for place in range(after + max(digits, 1) - 1, after - 1, -1):
                room[place] = np.uint8(part % 10) + np.uint8(ZERO)
                part //= 10
            return after + max(digits, 1)
        power *= 10.0
    return -1


@_compiled
def _string(
    data: UInt8Array, pos: int, length: int, end: int, room: UInt8Array, at: int, limit: int
) -> Any:
    if pos < 0 or pos + length > end or at + length + 2 > limit:
        return -1
    room[at] = QUOTE
    at += 1
    spare = limit - at - length - 1
    for place in range(pos, pos + length):
        byte = data[place]
        letter = LETTERS[byte]
        if letter == 1:
            room[at] = byte
            at += 1
            continue
        spare -= 5
        if spare < 0:
            return -1
        room[at] = BACKSLASH
        if letter:
            room[at + 1] = letter
            at += 2
        else:
            room[at + 1], room[at + 2], room[at + 3] = np.uint8(117), ZERO, ZERO
            room[at + 4], room[at + 5] = HEX[byte >> 4], HEX[byte & 15]
            at += 6
    room[at] = QUOTE
    return at + 1
