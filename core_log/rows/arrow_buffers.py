"""Columns of bytes for numpy: one buffer of bytes, and where each value begins; maps as keys and
values."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array

COLUMN_BYTES_MAX = 2**31 - 1
"""Offsets of such columns have 31 bits."""


def bytes_and_offsets(column: pa.Array) -> tuple[UInt8Array, Int64Array]:
    """Returns all bytes in one buffer, and n + 1 offsets into it from 0 on; a null is empty."""
    if not len(column):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, offset_buffer, data = column.buffers()
    first = column.offset
    offsets = np.frombuffer(offset_buffer, np.int32)[first : first + len(column) + 1]
    found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return found[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0]


def column_of(
    kind: pa.DataType, data: UInt8Array, offsets: Int64Array, *, like: pa.Array
) -> pa.Array:
    """Returns a column of these bytes that is null where `like` is."""
    assert offsets[-1] <= COLUMN_BYTES_MAX, "a batch of rows stays below 2 GiB a column"
    buffers = [
        validity(like),
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(data)),
    ]
    return pa.Array.from_buffers(kind, len(like), buffers)


def fixed_width_column(kind: pa.DataType, data: UInt8Array, *, like: pa.Array) -> pa.Array:
    """Returns such a column of text whose values all have the width of `data`'s rows."""
    offsets = np.arange(len(like) + 1, dtype=np.int64) * data.shape[1]
    return column_of(kind, data.reshape(-1), offsets, like=like)


def slices_of(data: UInt8Array, starts: Int64Array, ends: Int64Array) -> pa.StringArray:
    """Returns ranges of one text; they are in order and do not overlap."""
    if not len(starts):
        return pa.array([], pa.string())
    marks = np.stack((starts, ends), axis=1).reshape(-1)
    bounds = pa.py_buffer(np.append(marks, marks[-1:]).astype(np.int32))
    buffers = [None, bounds, pa.py_buffer(np.ascontiguousarray(data))]
    slices = pa.Array.from_buffers(pa.string(), len(marks), buffers)
    return slices.take(pa.array(np.arange(0, len(marks), 2)))


def numbers_column(kind: pa.DataType, data: npt.NDArray[np.generic], *, like: pa.Array) -> pa.Array:
    """Returns a column of numbers (or a type stored as numbers) that is null where `like` is."""
    buffer = pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(kind, len(like), [validity(like), buffer])


def validity(column: pa.Array) -> pa.Buffer | None:
    """Returns the validity bitmap, beginning at its first bit."""
    if not column.null_count:
        return None
    return pa.py_buffer(np.packbits(is_valid(column), bitorder="little"))


def is_valid(column: pa.Array) -> BoolArray:
    found: BoolArray = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def integers(column: pa.Array) -> Int64Array:
    """Returns the stored 64-bit numbers of a column; 0 for a null."""
    numbers = column.view(pa.int64())
    if numbers.null_count:
        numbers = numbers.fill_null(0)
    found: Int64Array = numbers.to_numpy()
    return found


def pairs_of(column: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Returns keys and values of all maps, and the number of entries of each map."""
    offsets = column.offsets
    first, count = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    counts = pc.subtract(offsets[1:], offsets[:-1])
    return column.keys.slice(first, count), column.items.slice(first, count), counts


def list_like(column: pa.ListArray, items: pa.Array) -> pa.ListArray:
    """Returns lists of these items, as long as those of `column` and null where it is."""
    counts = pc.list_value_length(column).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)
