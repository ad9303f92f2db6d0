"""Values that lie somewhere in a buffer, made into columns: once in NumPy and once compiled."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

WIDE_BYTES = 8
HIGH_BITS = np.uint64(0x8080808080808080)  # not set in ASCII

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


def gather_plainly(
    buffer: UInt8Array, bounds: Int32Array, missing: Mapping[int, BoolArray]
) -> list[pa.BinaryArray]:
    """Returns a column per line of `bounds`, which has the begin and end of every value in turn.

    The values and the gaps between them are one array over the buffer itself, and every other
    element is a value.
    """
    length = bounds.shape[1]
    content = pa.py_buffer(buffer)
    places = np.arange(0, length, 2, dtype=np.int32)
    all_of_them = pa.array(places)
    found = list[pa.BinaryArray]()
    for column, places_of_column in enumerate(bounds):
        is_missing = missing.get(column)
        picks = all_of_them if is_missing is None else pa.array(places, mask=is_missing)
        values_and_gaps = pa.Array.from_buffers(
            pa.binary(), length - 1, [None, pa.py_buffer(places_of_column), content]
        )
        found.append(values_and_gaps.take(picks))
    return found


def gather_compiled(
    buffer: UInt8Array, bounds: Int32Array, missing: Mapping[int, BoolArray]
) -> tuple[list[pa.BinaryArray], BoolArray]:
    """Returns the same as `gather_plainly`, and which columns may hold more than ASCII. It may
    read up to eight bytes beyond a value."""
    columns, rows = bounds.shape[0], bounds.shape[1] // 2
    offsets = np.empty((columns, rows + 1), np.int32)
    _offsets(bounds, offsets)
    ends = np.cumsum(offsets[:, -1].astype(np.int64) + WIDE_BYTES)
    content, seen = np.empty(int(ends[-1]), np.uint8), np.zeros(columns, np.uint64)
    begins = ends - offsets[:, -1] - WIDE_BYTES
    _copy(_wide(buffer), bounds, offsets, begins, _wide(content), seen)
    found = list[pa.BinaryArray]()
    for column in range(columns):
        piece = content[begins[column] : begins[column] + offsets[column, -1]]
        is_there, nulls = None, 0
        if (is_missing := missing.get(column)) is not None:
            is_there = pa.py_buffer(np.packbits(~is_missing, bitorder="little"))
            nulls = int(is_missing.sum())
        buffers = [is_there, pa.py_buffer(offsets[column]), pa.py_buffer(piece)]
        found.append(pa.Array.from_buffers(pa.binary(), rows, buffers, nulls))
    return found, np.asarray(seen & HIGH_BITS != 0)


def _wide(content: UInt8Array) -> npt.NDArray[np.uint64]:
    """Returns the eight bytes at every place as one number."""
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
def _copy(
    source: Any, bounds: Any, offsets: Any, begins: Int64Array, target: Any, seen: Any
) -> None:
    """Copies eight bytes at a time: the next value overwrites the surplus of one."""
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
