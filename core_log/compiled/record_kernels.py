"""Compiled loops over records, and over the headers of one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array

VARINT_SHIFT_MAX = np.uint64(63)
"""Numbers of more than nine bytes are left to the slow reader."""
RECORD_BYTES_MIN = 6
"""Attributes, two deltas, two lengths, header count."""
DIGITS_MAX, ZERO = 18, 48

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


@_compiled
def locate(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, counts: Int64Array, found: Int64Array
) -> Any:
    """Fills the rows of `found`, which `record_views` names. Returns False if anything is invalid;
    the slow reader then finds out what."""
    row = 0
    for section in range(len(counts)):
        at, limit = starts[section], ends[section]
        for _ in range(counts[section]):
            length, at = _number(data, at, limit)
            end = at + length
            if at < 0 or length < RECORD_BYTES_MIN or end > limit:
                return False
            time, at = _number(data, at + 1, end)  # 1: attributes
            offset, at = _number(data, at, end)
            key_bytes, key = _number(data, at, end)
            if key < 0 or key_bytes < -1 or key_bytes > end - key:
                return False
            value_bytes, value = _number(data, key + max(key_bytes, 0), end)
            if value < 0 or value_bytes < -1 or value_bytes > end - value:
                return False
            headers = value + max(value_bytes, 0)
            if headers >= end:
                return False
            found[0, row], found[1, row] = offset, time
            found[2, row], found[3, row] = key, key_bytes
            found[4, row], found[5, row] = value, value_bytes
            found[6, row], found[7, row] = headers, end
            at = end
            row += 1
        if at != limit:
            return False
    return True


@_compiled
def header_numbers(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, name: UInt8Array, found: Int64Array
) -> Any:
    """Fills the number that the last header of that name has as decimal digits; unchanged for a
    record without it. Returns False if anything is invalid."""
    for row in range(len(starts)):
        end = ends[row]
        count, at = _number(data, starts[row], end)
        if at < 0 or count < 0:
            return False
        for _ in range(count):
            length, first = _number(data, at, end)
            if first < 0 or length < 0 or length > end - first:
                return False
            size, value = _number(data, first + length, end)
            if value < 0 or size < -1 or size > end - value:
                return False
            at = value + max(size, 0)
            if length == len(name) and _is_same(data, first, name):
                found[row] = _decimal(data, value, size)
                if found[row] < 0:
                    return False
        if at != end:
            return False
    return True


@_compiled
def _number(data: UInt8Array, position: Any, limit: Any) -> Any:
    """Returns a zigzag varint and where it ends; -1 if it is invalid or already was."""
    number, shift = np.uint64(0), np.uint64(0)
    while 0 <= position < limit and shift < VARINT_SHIFT_MAX:
        byte = np.uint64(data[position])
        number |= (byte & np.uint64(0x7F)) << shift
        position += 1
        if byte < 0x80:
            return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@_compiled
def _is_same(data: UInt8Array, at: Any, text: UInt8Array) -> Any:
    for index in range(len(text)):  # noqa: SIM110 - a generator would not be compiled
        if data[at + index] != text[index]:
            return False
    return True


@_compiled
def _decimal(data: UInt8Array, at: Any, size: Any) -> Any:
    """Returns the number of these digits; -1 if they are not digits."""
    if size < 1 or size > DIGITS_MAX:
        return np.int64(-1)
    number = np.int64(0)
    for index in range(size):
        digit = np.int64(data[at + index]) - ZERO
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = number * 10 + digit
    return number
