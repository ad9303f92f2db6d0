"""The compiled loops over bytes; their machine code is cached beside this file."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.connectors.byte_spans import gather_compiled
from headwater.connectors.postgres.wal.kernels import (
    COPY_DATA,
    COUNT_BYTES,
    FEW_ROWS,
    FOREIGN,
    KEEPALIVE,
    KIND_AT,
    LENGTH_BYTES,
    NO_VALUE,
    NULL,
    TAG_AT,
    TEXT,
    UNCHANGED,
    WAL_MESSAGE,
    CopyFields,
    FieldSpans,
    FrameBounds,
    check_utf8,
    few_values,
)
from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

FRAME_BYTES_MIN = 5

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


class FastKernels:
    def __init__(self, few_rows: int = FEW_ROWS) -> None:
        self._few_rows = few_rows

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        room = (end - begin) // FRAME_BYTES_MIN + 1
        starts, tags = np.empty(room, np.int64), np.empty(room, np.uint8)
        count, stop = _walk(buffer, begin, end, starts, tags)
        return FrameBounds(starts[:count].copy(), tags[:count].copy(), stop)

    def spans(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        rows = len(starts)
        bounds = np.empty((columns, 2 * rows), np.int32)
        marks = np.empty((columns, rows), np.uint8)
        are_texts, after = np.ones(columns, np.bool_), np.empty(rows, np.int64)
        _spans(buffer, starts, stops, bounds, marks, are_texts, after)
        return FieldSpans(bounds, marks, are_texts, after)

    def values(
        self,
        buffer: UInt8Array,
        bounds: Int32Array,
        missing: Mapping[int, BoolArray],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        if bounds.shape[1] // 2 <= self._few_rows:
            return few_values(buffer, bounds, missing, bare)
        gathered, are_wide = gather_compiled(buffer, bounds, missing)
        found = [
            each if column in bare else each.view(pa.string())
            for column, each in enumerate(gathered)
        ]
        for column in np.flatnonzero(are_wide).tolist():
            if column not in bare:
                check_utf8(found[column])
        return tuple(found)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        rows = len(starts)
        bounds = np.zeros((columns, 2 * rows), np.int32)
        is_null, have_nulls = np.zeros((columns, rows), np.bool_), np.zeros(columns, np.bool_)
        is_sound = _cells(buffer, starts, stops, bounds, is_null, have_nulls)
        return CopyFields(bounds, is_null, have_nulls, bool(is_sound))


@_compiled
def _short(buffer: UInt8Array, at: int) -> Any:
    return np.int64(buffer[at]) << 8 | np.int64(buffer[at + 1])


@_compiled
def _length(buffer: UInt8Array, at: int) -> Any:
    high, low = np.int64(buffer[at]) << 24, np.int64(buffer[at + 1]) << 16
    return high | low | (np.int64(buffer[at + 2]) << 8) | np.int64(buffer[at + 3])


@_compiled
def _walk(
    buffer: UInt8Array, begin: int, end: int, starts: Int64Array, tags: UInt8Array
) -> tuple[int, int]:
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
    buffer: UInt8Array,
    starts: Int64Array,
    stops: Int64Array,
    bounds: Any,
    marks: UInt8Array,
    are_texts: Any,
    after: Int64Array,
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


@_compiled
def _cells(
    buffer: UInt8Array,
    starts: Int64Array,
    stops: Int64Array,
    bounds: Any,
    is_null: Any,
    have_nulls: Any,
) -> bool:
    columns = len(is_null)
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        if at + COUNT_BYTES > stop or _short(buffer, at) != columns:
            return False
        at += COUNT_BYTES
        for column in range(columns):
            begin = at + LENGTH_BYTES
            if begin > stop:
                return False
            length = _length(buffer, at)
            if length == NO_VALUE:
                is_null[column, row] = have_nulls[column] = True
                length = 0
            at = begin + length
            if at > stop:
                return False
            bounds[column, 2 * row], bounds[column, 2 * row + 1] = begin, at
        if at != stop:
            return False
    return True
