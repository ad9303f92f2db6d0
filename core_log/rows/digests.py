"""Digests of 64 bits for every row, which are the same for rows of equal columns and types."""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, chosen_speed
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets

Digests = npt.NDArray[np.uint64]

WORD = 8
LOOPED_BYTES_MAX = 512
"""Longer texts are digested one by one: the loop over words would be as long as the longest
text."""

ROWS_MIN, WORTH_ROWS = 500, 20_000
"""Minimum of rows at a time, and in all, for which compiled code pays."""
NULL = np.uint64(0x6E75_6C6C_6E75_6C6C)
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB)
_TAILS = np.array([(1 << 8 * size) - 1 for size in range(WORD)], dtype=np.uint64)


def digests_of(columns: Sequence[pa.Array], rows: int) -> Digests:
    """Returns one digest per row. Two different rows have the same digest about once in 2^64
    pairs."""
    found: Digests = np.full(rows, _STEP, dtype=np.uint64)
    for column in columns if rows else ():
        found = _mix(found * _MIX_1 + _of_column(column))
    return found


def _of_column(column: pa.Array) -> Digests:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _of_column(column.cast(kind.value_type))
    if pa.types.is_null(kind):
        return np.full(len(column), NULL, dtype=np.uint64)
    found = _of_nested(column) if pa.types.is_nested(kind) else _of_values(column)
    if column.null_count:
        found[np.asarray(column.is_null())] = NULL
    return found


def _of_values(column: pa.Array) -> Digests:
    """Returns digests of values; the digest of a null is undefined."""
    kind = column.type
    if pa.types.is_floating(kind):
        # positive and negative zero become one
        numbers = column.cast(pa.float64()).fill_null(0).to_numpy() + 0.0
        return _mix(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64))
    if pa.types.is_decimal(kind):
        return _of_words(column, kind.bit_width // 64)
    if not pa.types.is_primitive(kind):  # texts and bytes
        return _of_bytes(column)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif kind.bit_width < 64 and not pa.types.is_integer(kind):  # dates and times
        column = column.cast(pa.int32())
    elif not pa.types.is_integer(kind):
        column = column.cast(pa.int64())
    numbers = column.fill_null(0).to_numpy()
    return _mix(numbers.astype(np.int64 if numbers.dtype.kind == "i" else np.uint64))


def _of_nested(column: pa.Array) -> Digests:
    """Digests structs by their fields, lists by their items in order, maps in any order."""
    kind = column.type
    if pa.types.is_struct(kind):
        return digests_of(column.flatten(), len(column))
    if pa.types.is_map(kind):
        offsets = column.offsets.to_numpy()
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        pairs = [column.keys.slice(first, count), column.items.slice(first, count)]
        return _sum(_mix(digests_of(pairs, count)), np.diff(offsets))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    items = _of_column(column.flatten())
    indices = np.arange(len(items)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return _sum(_mix(items + indices.astype(np.uint64) * _STEP), lengths)


def _sum(items: Digests, lengths: npt.NDArray[np.integer[Any]]) -> Digests:
    """Returns the sum of each group of that many digests."""
    ends = np.cumsum(lengths)
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(items, dtype=np.uint64))
    counts = lengths.astype(np.uint64)
    found: Digests = sums[ends] - sums[ends - lengths]
    return _mix(found + counts * _STEP)


def _of_words(column: pa.Array, count: int) -> Digests:
    words = np.frombuffer(column.buffers()[1], np.uint64)
    words = words[column.offset * count : (column.offset + len(column)) * count]
    found: Digests = np.zeros(len(column), dtype=np.uint64)
    for index in range(count):
        found = _mix(found * _MIX_1 + words[index::count])
    return found


def _of_bytes(column: pa.Array) -> Digests:
    data, offsets = bytes_and_offsets(column.cast(pa.binary()))
    lengths = np.diff(offsets)
    walk = _load_compiled(len(lengths))
    if walk is None or len(data) < WORD:
        found = _gather(data, offsets[:-1], lengths)
    else:
        found = np.empty(len(lengths), np.uint64)
        words = np.ndarray((len(data) - WORD + 1,), "<u8", buffer=data, strides=(1,))
        walk.digest(_to_fixed(data), _to_fixed(words), offsets, LOOPED_BYTES_MAX, found)
    for row in np.flatnonzero(lengths > LOOPED_BYTES_MAX).tolist():
        content = data[offsets[row] : offsets[row + 1]].tobytes()
        found[row] = int.from_bytes(blake2b(content, digest_size=WORD).digest(), "little")
    return _mix(found)


def _gather(data: UInt8Array, starts: Int64Array, lengths: Int64Array) -> Digests:
    """Digests word by word for all rows at once."""
    found: Digests = lengths.astype(np.uint64) * _STEP
    is_long = lengths > LOOPED_BYTES_MAX
    padded = np.append(data, np.zeros(WORD, np.uint8))
    words = np.ndarray((len(padded) - WORD + 1,), "<u8", buffer=padded, strides=(1,))
    for index in range(0, int(lengths[~is_long].max(initial=0)), WORD):
        rows = np.flatnonzero((lengths > index) & ~is_long)
        left = lengths[rows] - index
        taken = words[starts[rows] + index]
        taken = np.where(left < WORD, taken & _TAILS[np.minimum(left, WORD - 1)], taken)
        found[rows] = _mix(found[rows] * _MIX_1 + taken)
    return found


def _mix(numbers: npt.NDArray[np.generic]) -> Digests:
    """Mixes so that every output bit depends on every input bit (the end of splitmix64)."""
    bits = numbers.view(np.uint64)
    walk = _load_compiled(len(bits))
    if walk is not None:
        found: Digests = np.empty(len(bits), np.uint64)
        walk.mix(_to_fixed(np.ascontiguousarray(bits)), found)
        return found
    bits = (bits ^ bits >> np.uint64(30)) * _MIX_1
    bits = (bits ^ bits >> np.uint64(27)) * _MIX_2
    mixed: Digests = bits ^ bits >> np.uint64(31)
    return mixed


def _to_fixed(numbers: Any) -> Any:
    """Copies unless the array has the one layout that the code is compiled for."""
    seen = numbers.view()
    seen.flags.writeable = False
    return seen


def _load_compiled(rows: int) -> ModuleType | None:
    if rows < ROWS_MIN:
        return None
    _walk().count(rows)
    walk: ModuleType | None = _walk().now
    return walk


@cache
def _walk() -> CompiledSpeed[Any]:
    return CompiledSpeed(None, _load if chosen_speed() == "fast" else None, WORTH_ROWS)


def _load() -> Any:
    from headwater.core_log.compiled import byte_kernels

    # Compiled at the first call, for the types of its arrays.
    data, found = np.zeros(4 * WORD, np.uint8), np.empty(2, np.uint64)
    words = np.ndarray((len(data) - WORD + 1,), "<u8", buffer=data, strides=(1,))
    offsets = np.array([0, 9, 12])
    byte_kernels.digest(_to_fixed(data), _to_fixed(words), offsets, LOOPED_BYTES_MAX, found)
    byte_kernels.mix(_to_fixed(found), np.empty(2, np.uint64))
    return byte_kernels
