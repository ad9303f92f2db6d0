"""Partitions of whole columns of keys by Kafka's murmur2."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.records.murmur2 import MIX, POSITIVE, SEED, SHIFT

Partitions = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]

_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)


def partitions_of(keys: pa.BinaryArray, partition_count: int) -> Partitions:
    """Returns one partition per row; null keys get -1."""
    hashes = murmur2_column(keys).astype(np.int64)
    partitions = (hashes & POSITIVE) % partition_count
    if keys.null_count:
        partitions[np.asarray(keys.is_null())] = -1
    return partitions


def murmur2_column(keys: pa.BinaryArray) -> Hashes:
    """Returns `murmur2` of every row, word by word for all rows at once; a null counts as an empty
    key."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: len(keys) + 1]
    starts, lengths = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    if keys.null_count:
        lengths = np.where(np.asarray(keys.is_null()), 0, lengths)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    padded = np.append(data, np.zeros(4, dtype=np.uint8))
    words: Hashes = np.ndarray((len(padded) - 3,), "<u4", buffer=padded, strides=(1,))
    hashed = (np.uint32(SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    shortest = int(lengths.min(initial=int(lengths.max(initial=0))))
    for index in range(0, int(lengths.max(initial=0)) // 4 * 4, 4):
        if index + 4 <= shortest:
            hashed = hashed * np.uint32(MIX) ^ _mix(words[starts + index])
            continue
        rows = np.flatnonzero(lengths >= index + 4)
        hashed[rows] = hashed[rows] * np.uint32(MIX) ^ _mix(words[starts[rows] + index])
    tails = np.flatnonzero(lengths % 4)
    rest = lengths[tails] % 4
    tail = words[starts[tails] + lengths[tails] - rest] & _TAIL_MASKS[rest]
    hashed[tails] = (hashed[tails] ^ tail) * np.uint32(MIX)
    hashed = (hashed ^ hashed >> np.uint32(13)) * np.uint32(MIX)
    return hashed ^ hashed >> np.uint32(15)


def _mix(words: Hashes) -> Hashes:
    words = words * np.uint32(MIX)
    return (words ^ words >> np.uint32(SHIFT)) * np.uint32(MIX)
