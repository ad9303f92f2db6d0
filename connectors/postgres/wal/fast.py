"""The loops over bytes, compiled; the machine code is kept beside this file for the next start."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.postgres.wal.burst import Bytes, Int64s
from connectors.postgres.wal.kernels import (
    FOREIGN,
    NULL,
    TEXT,
    UNCHANGED,
    Cells,
    Flags,
    Frames,
    Int32s,
    Spans,
)
from connectors.postgres.wal.texts import FEW_ROWS, check, few_texts
from core_log.native import Native

COPY_DATA, WAL_MESSAGE, KEEPALIVE = b"dwk"
TAG_AT, KIND_AT = 30, 5
FRAME_BYTES_MIN = 5
WIDE_BYTES = 8
HIGH_BITS = np.uint64(0x8080808080808080)  # none is set in ASCII
ONES = np.uint64(0x0101010101010101)
BACKSLASHES, ABOVE_LINE_ENDS = ONES * np.uint64(0x5C), ONES * np.uint64(0x0B)
TAB, LINE_END, BACKSLASH, CAPITAL_N = b"\t\n\\N"

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = Native


class FastKernels:
    def __init__(self, few_rows: int = FEW_ROWS) -> None:
        self._few_rows = few_rows

    def walk(self, buffer: Bytes, begin: int, end: int) -> Frames:
        room = (end - begin) // FRAME_BYTES_MIN + 1
        starts, tags = np.empty(room, np.int64), np.empty(room, np.uint8)
        count, stop = _walk(buffer, begin, end, starts, tags)
        return Frames(starts[:count].copy(), tags[:count].copy(), stop)

    def spans(self, buffer: Bytes, starts: Int64s, stops: Int64s, columns: int) -> Spans:
        rows = len(starts)
        bounds = np.empty((columns, 2 * rows), np.int32)
        marks = np.empty((columns, rows), np.uint8)
        are_texts, after = np.ones(columns, np.bool_), np.empty(rows, np.int64)
        _spans(buffer, starts, stops, bounds, marks, are_texts, after)
        return Spans(bounds, marks, are_texts, after)

    def texts(
        self, buffer: Bytes, bounds: Int32s, missing: Mapping[int, Flags]
    ) -> tuple[pa.StringArray, ...]:
        columns, rows = bounds.shape[0], bounds.shape[1] // 2
        if rows <= self._few_rows:
            return few_texts(buffer, bounds, missing)
        offsets = np.empty((columns, rows + 1), np.int32)
        _offsets(bounds, offsets)
        ends = np.cumsum(offsets[:, -1].astype(np.int64) + WIDE_BYTES)
        content, seen = np.empty(int(ends[-1]), np.uint8), np.zeros(columns, np.uint64)
        begins = ends - offsets[:, -1] - WIDE_BYTES
        _copy(_wide(buffer), bounds, offsets, begins, _wide(content), seen)
        found = list[pa.StringArray]()
        for column in range(columns):
            piece = content[begins[column] : begins[column] + offsets[column, -1]]
            is_there, nulls = None, 0
            if (is_missing := missing.get(column)) is not None:
                is_there = pa.py_buffer(np.packbits(~is_missing, bitorder="little"))
                nulls = int(is_missing.sum())
            buffers = [is_there, pa.py_buffer(offsets[column]), pa.py_buffer(piece)]
            found.append(pa.Array.from_buffers(pa.string(), rows, buffers, nulls))
            if seen[column] & HIGH_BITS:
                check(found[-1])
        return tuple(found)

    def cells(self, buffer: Bytes, end: int, columns: int) -> Cells:
        rows = int(_lines(buffer, end))
        bounds = np.zeros((columns, 2 * rows), np.int32)
        is_null = np.zeros((columns, rows), np.bool_)
        have_nulls, have_escapes = np.zeros(columns, np.bool_), np.zeros(columns, np.bool_)
        wide = _wide(buffer)
        is_sound = _cells(buffer, wide, end, bounds, is_null, have_nulls, have_escapes)
        return Cells(bounds, is_null, have_nulls, have_escapes, bool(is_sound))


@_compiled
def _length(buffer: Bytes, at: int) -> Any:
    high, low = np.int64(buffer[at]) << 24, np.int64(buffer[at + 1]) << 16
    return high | low | (np.int64(buffer[at + 2]) << 8) | np.int64(buffer[at + 3])


@_compiled
def _walk(buffer: Bytes, begin: int, end: int, starts: Int64s, tags: Bytes) -> tuple[int, int]:
    at, count = begin, 0
    while at + FRAME_BYTES_MIN <= end:
        length = _length(buffer, at + 1)
        after = at + 1 + length
        if after > end or length < 4:
            break
        if buffer[at] != COPY_DATA:
            tag = buffer[at] | FOREIGN
        elif buffer[at + KIND_AT] == KEEPALIVE:
            tag = KEEPALIVE
        elif buffer[at + KIND_AT] == WAL_MESSAGE and at + TAG_AT < len(buffer):
            tag = buffer[at + TAG_AT]
        else:
            tag = 0
        starts[count], tags[count] = at, tag
        count += 1
        at = after
    return count, at


@_compiled
def _spans(
    buffer: Bytes,
    starts: Int64s,
    stops: Int64s,
    bounds: Any,
    marks: Bytes,
    are_texts: Any,
    after: Int64s,
) -> None:
    columns = len(marks)
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        for column in range(columns):
            if at >= stop:
                at = stop + 1
                break
            mark = buffer[at]
            begin = at + 1
            if mark == TEXT:
                begin = at + 5
                at = begin + _length(buffer, at + 1)
            else:
                are_texts[column] = False
                at = begin
                if mark != NULL and mark != UNCHANGED:
                    at = stop + 1
                    break
            if at > stop:
                break
            marks[column, row] = mark
            bounds[column, 2 * row], bounds[column, 2 * row + 1] = begin, at
        after[row] = at if at <= stop else -1


def _wide(content: Bytes) -> npt.NDArray[np.uint64]:
    """At every place the eight bytes that begin there."""
    return np.ndarray((len(content) - WIDE_BYTES + 1,), np.uint64, content, 0, (1,))


@_compiled
def _offsets(bounds: Any, offsets: Any) -> None:
    columns, places = bounds.shape
    for column in range(columns):
        at = 0
        for row in range(places // 2):
            offsets[column, row] = at
            at += bounds[column, 2 * row + 1] - bounds[column, 2 * row]
        offsets[column, places // 2] = at


@_compiled
def _copy(source: Any, bounds: Any, offsets: Any, begins: Int64s, target: Any, seen: Any) -> None:
    """Eight bytes at a time: what is written too much of one value, the next one covers."""
    columns, places = bounds.shape
    for row in range(places // 2):
        for column in range(columns):
            begin = bounds[column, 2 * row]
            length = bounds[column, 2 * row + 1] - begin
            to = begins[column] + offsets[column, row]
            for done in range(0, length, 8):
                piece = source[begin + done]
                seen[column] |= piece
                target[to + done] = piece


@_compiled
def _marks(word: Any) -> Any:
    """The top bit of every byte that is a tab, a line's end or a backslash, and of some more."""
    other = word ^ BACKSLASHES
    return (((word - ABOVE_LINE_ENDS) & ~word) | ((other - ONES) & ~other)) & HIGH_BITS


@_compiled
def _first(marks: Any) -> Any:
    """The place of the first byte that has one."""
    bit = (marks & (~marks + np.uint64(1))) >> np.uint64(7)
    return np.int64(((bit - np.uint64(1)) & ONES) * ONES >> np.uint64(56))


@_compiled
def _lines(buffer: Bytes, end: int) -> int:
    count = 0
    for at in range(end):
        count += buffer[at] == LINE_END
    return count


@_compiled
def _cells(
    buffer: Bytes,
    wide: Any,
    end: int,
    bounds: Any,
    is_null: Any,
    have_nulls: Any,
    have_escapes: Any,
) -> bool:
    """A word after the other, so that the next can be looked at before this one is done with."""
    columns, rows = is_null.shape
    row, column, begin, has_escape = 0, 0, 0, False
    for base in range(0, end, WIDE_BYTES):
        marks = _marks(wide[base])
        while marks != 0:
            at = base + _first(marks)
            marks &= marks - np.uint64(1)
            mark = buffer[at]
            if mark == BACKSLASH:
                has_escape = True
            if at >= end or (mark != TAB and mark != LINE_END):
                continue
            if row >= rows or (mark == LINE_END) != (column == columns - 1):
                return False
            bounds[column, 2 * row], bounds[column, 2 * row + 1] = begin, at
            if has_escape and at - begin == 2 and buffer[begin + 1] == CAPITAL_N:
                is_null[column, row] = have_nulls[column] = True
            elif has_escape:
                have_escapes[column] = True
            begin, has_escape, column = at + 1, False, column + 1
            if column == columns:
                row, column = row + 1, 0
    return bool(row == rows and column == 0 and begin == end)
