"""Which partition a key belongs to: Kafka's murmur2, as the Java client places records."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Partitions = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]

_SEED, _MIX, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
_POSITIVE = 0x7FFFFFFF


def partitions_of(keys: pa.BinaryArray, partition_count: int) -> Partitions:
    """One partition per row. Null keys have no place of their own; they get -1."""
    hashes = murmur2_column(keys).astype(np.int64)
    partitions = (hashes & _POSITIVE) % partition_count
    if keys.null_count:
        partitions[np.asarray(keys.is_null())] = -1
    return partitions


def partition_of(key: bytes, partition_count: int) -> int:
    """The same for a single key."""
    return (murmur2(key) & _POSITIVE) % partition_count


def murmur2(key: bytes) -> int:
    """32 bits, as an unsigned number."""
    mask, whole = 0xFFFFFFFF, len(key) // 4 * 4
    hashed = _SEED ^ len(key)
    for place in range(0, whole, 4):
        word = int.from_bytes(key[place : place + 4], "little") * _MIX & mask
        word = (word ^ word >> _SHIFT) * _MIX & mask
        hashed = hashed * _MIX & mask ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MIX & mask
    hashed = (hashed ^ hashed >> 13) * _MIX & mask
    return hashed ^ hashed >> 15


def murmur2_column(keys: pa.BinaryArray) -> Hashes:
    """`murmur2` of every row at once, word by word; a null counts as an empty key."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: len(keys) + 1]
    starts, lengths = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    if keys.null_count:
        lengths = np.where(np.asarray(keys.is_null()), 0, lengths)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    padded = np.append(data, np.zeros(4, dtype=np.uint8))
    words: Hashes = np.ndarray((len(padded) - 3,), "<u4", buffer=padded, strides=(1,))
    hashed = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    shortest = int(lengths.min(initial=int(lengths.max(initial=0))))
    for place in range(0, int(lengths.max(initial=0)) // 4 * 4, 4):
        if place + 4 <= shortest:
            hashed = hashed * np.uint32(_MIX) ^ _mixed(words[starts + place])
            continue
        rows = np.flatnonzero(lengths >= place + 4)
        hashed[rows] = hashed[rows] * np.uint32(_MIX) ^ _mixed(words[starts[rows] + place])
    tails = np.flatnonzero(lengths % 4)
    rest = lengths[tails] % 4
    tail = words[starts[tails] + lengths[tails] - rest] & _TAIL_MASKS[rest]
    hashed[tails] = (hashed[tails] ^ tail) * np.uint32(_MIX)
    hashed = (hashed ^ hashed >> np.uint32(13)) * np.uint32(_MIX)
    return hashed ^ hashed >> np.uint32(15)


def _mixed(words: Hashes) -> Hashes:
    words = words * np.uint32(_MIX)
    return (words ^ words >> np.uint32(_SHIFT)) * np.uint32(_MIX)
