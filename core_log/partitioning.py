"""Which partition a key belongs to: Kafka's murmur2, for a whole column of keys at once."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_KEY = -1
"""In place of a partition: the record may go anywhere."""

SEED = 0x9747B28C
MULTIPLIER = np.uint32(0x5BD1E995)
POSITIVE = np.uint32(0x7FFFFFFF)

Hashes = npt.NDArray[np.uint32]


def partitions_of(keys: pa.BinaryArray, count: int) -> npt.NDArray[np.int64]:
    """As Kafka's own clients choose, so that everyone who writes a key finds its partition."""
    chosen = ((murmur2(keys) & POSITIVE) % np.uint32(count)).astype(np.int64)
    if keys.null_count:
        chosen[np.asarray(keys.is_null())] = NO_KEY
    return chosen


def murmur2(keys: pa.BinaryArray) -> Hashes:
    """The hash of every key; one pass over the column per four bytes of the longest key."""
    ends = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    content = keys.buffers()[2]
    # Some bytes behind the last key, so that a whole word can be read anywhere in it.
    data = np.frombuffer(bytes(content or b"") + bytes(4), np.uint8)
    with np.errstate(over="ignore"):  # arithmetic of 32 bits wraps, as in the original
        hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
        words = lengths >> 2
        for number in range(int(words.max(initial=0))):
            rows = np.flatnonzero(words > number)
            hashes[rows] = _with_word(hashes[rows], _word_at(data, starts[rows] + 4 * number))
        rest = lengths & 3
        rows = np.flatnonzero(rest)
        masks = ((np.int64(1) << (8 * rest[rows])) - 1).astype(np.uint32)
        tails = _word_at(data, starts[rows] + (words[rows] << 2)) & masks
        hashes[rows] = (hashes[rows] ^ tails) * MULTIPLIER
        hashes ^= hashes >> np.uint32(13)
        hashes *= MULTIPLIER
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _word_at(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> Hashes:
    """Four bytes, the lowest first."""
    word = data[positions].astype(np.uint32)
    for place in (1, 2, 3):
        word |= data[positions + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _with_word(hashes: Hashes, word: Hashes) -> Hashes:
    word = word * MULTIPLIER
    word ^= word >> np.uint32(24)
    mixed: Hashes = (hashes * MULTIPLIER) ^ (word * MULTIPLIER)
    return mixed
