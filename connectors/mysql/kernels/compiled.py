"""The compiled loops over bytes; their machine code is cached beside this file."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.byte_spans import gather_compiled
from headwater.connectors.mysql.kernels.json_texts import write_documents
from headwater.connectors.mysql.kernels.kernels import (
    LENGTH_2,
    LENGTH_3,
    LENGTH_8,
    NULL_CELL,
    PACKET_BYTES_MAX,
    PACKET_HEAD_BYTES,
    CellSpans,
    Packets,
    PlainMysqlKernels,
    RowLayout,
    RowSpans,
    missing_of,
)
from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of

DOCUMENTS_BYTES_MAX = 256 << 20
"""The texts of more bytes might be too large for one column."""

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


class FastMysqlKernels:
    def __init__(self) -> None:
        self._plain = PlainMysqlKernels()

    def rows(
        self, buffer: UInt8Array, begins: Int64Array, ends: Int64Array, layout: RowLayout
    ) -> RowSpans:
        counts, columns = np.zeros(len(begins), np.int64), len(layout.widths)
        total = _count(buffer, begins, ends, layout.images, layout.widths, counts)
        bounds = np.empty((columns, 2 * total), np.int32)
        is_null = np.empty((columns, total), np.bool_)
        _place(buffer, begins, counts, layout.images, layout.widths, bounds, is_null)
        return RowSpans(counts, bounds, is_null)

    def packets(self, buffer: UInt8Array, end: int) -> Packets:
        room = end // PACKET_HEAD_BYTES + 1
        starts, stops = np.empty(room, np.int64), np.empty(room, np.int64)
        count, stop = _packets(buffer, end, starts, stops)
        return Packets(starts[:count].copy(), stops[:count].copy(), stop)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CellSpans:
        bounds = np.zeros((columns, 2 * len(starts)), np.int32)
        is_null = np.zeros((columns, len(starts)), np.bool_)
        is_sound = _cells(buffer, starts, stops, bounds, is_null)
        return CellSpans(bounds, is_null, bool(is_sound))

    def gather(
        self, buffer: UInt8Array, bounds: Int32Array, is_null: BoolArray
    ) -> Sequence[pa.BinaryArray]:
        return gather_compiled(buffer, bounds, missing_of(is_null))[0]

    def documents(self, values: pa.BinaryArray) -> pa.StringArray:
        """Texts of broken documents raise the same errors as without a compiler."""
        if values.nbytes > DOCUMENTS_BYTES_MAX:
            return self._plain.documents(values)
        data, offsets = bytes_and_offsets(values)
        content, ends, is_hard = write_documents(data, offsets)
        try:
            texts = column_of(pa.binary(), content, ends, like=values).cast(pa.string())
        except pa.ArrowInvalid:
            return self._plain.documents(values)
        if not is_hard.any():
            return texts
        hard = pa.array(is_hard)
        return pc.replace_with_mask(texts, hard, self._plain.documents(values.filter(hard)))


@_compiled
def _number(buffer: UInt8Array, at: int, width: int) -> Any:
    found = np.int64(0)
    for place in range(width):
        found |= np.int64(buffer[at + place]) << (8 * place)
    return found


@_compiled
def _row_end(buffer: UInt8Array, at: int, end: int, images: Int32Array, widths: Int32Array) -> Any:
    """Returns the end of a row, beyond `end` if it is not whole."""
    column = 0
    for image in range(len(images)):
        bits = at
        at += (images[image] + 7) // 8
        if at > end:
            return end + 1
        for place in range(images[image]):
            if not (buffer[bits + place // 8] >> (place % 8)) & 1:
                width: Any = np.int64(widths[column])
                if width >= 0:
                    at += width
                elif at - width > end:
                    return end + 1
                else:
                    at += _number(buffer, at, -width) - width
                if at > end:
                    return end + 1
            column += 1
    return at


@_compiled
def _count(
    buffer: UInt8Array,
    begins: Int64Array,
    ends: Int64Array,
    images: Int32Array,
    widths: Int32Array,
    counts: Int64Array,
) -> Any:
    """Counts the rows of each chunk up to the first that is not whole; returns the sum."""
    total: Any = 0
    for chunk in range(len(begins)):
        at, end, rows = begins[chunk], ends[chunk], 0
        while at < end:
            after: Any = _row_end(buffer, at, end, images, widths)
            if after > end or after == at:
                counts[chunk] = -1
                return total
            at = after
            rows += 1
        counts[chunk] = rows
        total += rows
    return total


@_compiled
def _place(
    buffer: UInt8Array,
    begins: Int64Array,
    counts: Int64Array,
    images: Int32Array,
    widths: Int32Array,
    bounds: Any,
    is_null: Any,
) -> None:
    """The rows were counted, so that all of them are whole."""
    row = 0
    for chunk in range(len(begins)):
        at = begins[chunk]
        for _ in range(counts[chunk]):
            column = 0
            for image in range(len(images)):
                bits = at
                at += (images[image] + 7) // 8
                for place in range(images[image]):
                    is_missing = (buffer[bits + place // 8] >> (place % 8)) & 1 != 0
                    is_null[column, row] = is_missing
                    begin = at
                    if not is_missing:
                        width = np.int64(widths[column])
                        if width >= 0:
                            at += width
                        else:
                            begin = at - width
                            at = begin + _number(buffer, at, -width)
                    bounds[column, 2 * row], bounds[column, 2 * row + 1] = begin, at
                    column += 1
            row += 1


@_compiled
def _packets(buffer: UInt8Array, end: int, starts: Int64Array, stops: Int64Array) -> Any:
    at, count = 0, 0
    while at + PACKET_HEAD_BYTES <= end:
        length = _number(buffer, at, 3)
        after = at + PACKET_HEAD_BYTES + length
        if after > end or length == PACKET_BYTES_MAX:
            break
        starts[count], stops[count] = at + PACKET_HEAD_BYTES, after
        count += 1
        at = after
    return count, at


@_compiled
def _length_bytes(first: int) -> Any:
    """Returns the bytes of a cell's length behind its first byte; -1 if there is no such cell."""
    if first == LENGTH_2:
        return 2
    if first == LENGTH_3:
        return 3
    if first == LENGTH_8:
        return 8
    return 0 if first <= NULL_CELL else -1


@_compiled
def _cells(
    buffer: UInt8Array, starts: Int64Array, stops: Int64Array, bounds: Any, is_null: Any
) -> Any:
    columns = len(is_null)
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        for column in range(columns):
            if at >= stop:
                return False
            first = np.int64(buffer[at])
            width = _length_bytes(first)
            begin = at + 1 + width
            if width < 0 or begin > stop:
                return False
            is_null[column, row] = first == NULL_CELL
            length = _number(buffer, at + 1, width) if width else first % NULL_CELL
            at = begin + length
            if length < 0 or at > stop:
                return False
            bounds[column, 2 * row], bounds[column, 2 * row + 1] = begin, at
        if at != stop:
            return False
    return True
