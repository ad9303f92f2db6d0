"""Zigzag varints of whole columns of numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

Words = npt.NDArray[Any]  # unsigned; numpy's stubs lose that if a plain int takes part

_VARINT_BYTES_MAX, _WORD_BYTES = 10, 8
_MORE = 0x8080808080808080  # the top bit of a byte means that another byte follows

# One or two bytes, read as one little-endian number, are enough for almost every number here.
_PAIRS = np.arange(1 << 16, dtype=np.int64)
_SECOND = np.where(_PAIRS & 0x80, _PAIRS >> 8 << 7, 0)
_ZIGZAG = (_PAIRS & 0x7F) | _SECOND
_PAIR_LENGTHS = np.where(_PAIRS & 0x80, np.where(_PAIRS & 0x8000, 0, 2), 1)  # 0: it is longer
_PAIR_NUMBERS = (_ZIGZAG >> 1) ^ -(_ZIGZAG & 1)


def write_varints(*columns: Int64Array) -> pa.BinaryArray:
    """Returns one binary value per row: that row's numbers, each as a varint, one after another."""
    words = _pack([part for column in columns for part in _spread(column)], len(columns[0]))
    lengths = np.stack([length for _, length in words], axis=1)
    ends = np.cumsum(lengths.ravel())
    starts = (ends - lengths.ravel()).astype(np.int64)
    out = np.empty(int(ends[-1]) + _WORD_BYTES, dtype=np.uint8)
    # Each word is stored whole; the next one overwrites its unused bytes.
    overlapping: Words = np.ndarray((len(out) - 7,), "<u8", buffer=out, strides=(1,))
    overlapping[starts] = np.stack([word for word, _ in words], axis=1).ravel()
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    offsets[1:] = ends[len(words) - 1 :: len(words)]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def varint_lengths(numbers: Int64Array) -> Int64Array:
    """Returns the length of each number in bytes: one per started group of seven bits."""
    zigzag = _to_zigzag(numbers)
    lengths, top, shift = np.ones(len(numbers), dtype=np.int64), int(zigzag.max(initial=0)), 7
    while top >> shift:
        lengths += zigzag >= np.uint64(1 << shift)
        shift += 7
    return lengths


def read_varints(data: UInt8Array, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Reads one varint per row at `positions`; returns the numbers and where each one ends.

    Never reads outside `data`. A position beyond its end yields noise: the caller must compare the
    number's end with the record's end.
    """
    pairs = read_pairs(data, positions)
    numbers, lengths = _PAIR_NUMBERS.take(pairs), _PAIR_LENGTHS.take(pairs)
    ends = positions + lengths
    longer = np.flatnonzero(lengths == 0)
    if len(longer):
        numbers[longer], ends[longer] = _read_long_varints(data, positions[longer])
    return numbers, ends


def read_pairs(data: UInt8Array, positions: Int64Array) -> Words:
    """Returns the two bytes at each position as one number; positions are clamped to `data`."""
    last = len(data) - 1
    if positions.max(initial=0) < last:
        pairs: Words = np.ndarray((last,), "<u2", buffer=data, strides=(1,))
        return pairs[positions]
    low, high = data[np.minimum(positions, last)], data[np.minimum(positions + 1, last)]
    return low.astype(np.uint16) | np.where(positions < last, high, 0).astype(np.uint16) << 8


def _read_long_varints(data: UInt8Array, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    zigzag, ends = np.zeros(len(positions), dtype=np.uint64), positions.copy()
    unfinished, last = np.arange(len(positions)), len(data) - 1
    for index in range(_VARINT_BYTES_MAX):
        byte = data[np.minimum(ends[unfinished], last)].astype(np.uint64)
        zigzag[unfinished] |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        ends[unfinished] += 1
        unfinished = unfinished[byte >= 0x80]
        if not len(unfinished):
            signs = -(zigzag & np.uint64(1)).astype(np.int64)
            return (zigzag >> np.uint64(1)).astype(np.int64) ^ signs, ends
    raise DecodeError("number does not end", position=int(positions[unfinished[0]]))


def _to_zigzag(numbers: Int64Array) -> Words:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _spread(numbers: Int64Array) -> list[tuple[Words, Words]]:
    """Returns varints as little-endian words with their lengths: one word, or two beyond 56
    bits."""
    zigzag = _to_zigzag(numbers)
    top = int(zigzag.max(initial=0))
    if top < 0x80:
        return [(zigzag, np.ones(len(numbers), dtype=np.uint64))]
    if top < 0x4000:
        is_two = (zigzag >= 0x80).astype(np.uint64)
        word = (zigzag & 0x7F) | ((zigzag << 1) & 0x7F00) | (is_two << 7)
        return [(word, is_two + 1)]
    lengths = varint_lengths(numbers).view(np.uint64)
    if top < 1 << 56:
        return [(_spread_groups(zigzag, lengths), lengths)]
    low, high = np.minimum(lengths, 8), np.maximum(lengths, 8) - 8
    rest = zigzag >> 56
    more = np.where(lengths > 8, np.uint64(1 << 63), np.uint64(0))
    tail = (rest & 0x7F) | np.where(high == 2, rest >> 7 << 8 | 0x80, 0)
    return [(_spread_groups(zigzag, low) | more, low), (tail, high)]


def _spread_groups(zigzag: Words, lengths: Words) -> Words:
    """Moves eight groups of seven bits into eight bytes, halving the distance three times."""
    word = (zigzag & 0x0FFFFFFF) | ((zigzag & 0x00FFFFFFF0000000) << 4)
    word = (word & 0x00003FFF00003FFF) | ((word & 0x0FFFC0000FFFC000) << 2)
    word = (word & 0x007F007F007F007F) | ((word & 0x3F803F803F803F80) << 1)
    before_last = (np.uint64(1) << (8 * (lengths - 1))) - 1
    return word | (np.uint64(_MORE) & before_last)


def _pack(parts: list[tuple[Words, Words]], rows: int) -> list[tuple[Words, Words]]:
    """Joins neighbouring parts as long as they fit into one word in every row."""
    words: list[tuple[Words, Words]] = []
    room = 0
    for word, lengths in parts:
        longest = int(lengths.max(initial=0))
        if longest <= room:
            first, first_lengths = words.pop()
            words.append((first | word << (8 * first_lengths), first_lengths + lengths))
            room -= longest
        else:
            words.append((word, lengths))
            room = _WORD_BYTES - longest
    assert all(len(word) == rows for word, _ in words), "columns have equally many rows"
    return words
