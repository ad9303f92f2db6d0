"""128-bit digests of a column of keys: four independent 32-bit hashes drawn at random per run."""

import hashlib
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array

KeyDigestRows = npt.NDArray[Any]
"""Two unsigned 64-bit words per key."""

WORDWISE_BYTES_MAX = 256
"""Longer keys are hashed one by one, which then costs little beside their own size."""

SEED_BYTES = 16
_LANES = 4
_WORDS_MAX = WORDWISE_BYTES_MAX // 4
_LOW = 0xFFFFFFFF
_KEEP = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


class KeyDigests:
    """Multilinear hashing over 32-bit words: two given keys agree by chance once in 2^128 runs.

    The bound holds for any keys at all, since the factors are random and nobody sees them; so
    unlike a fixed hash it cannot be attacked by keys that were chosen to collide.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = seed or token_bytes(SEED_BYTES)
        factors = np.random.Generator(np.random.Philox(int.from_bytes(self._seed)))
        self._start = factors.integers(0, 1 << 64, _LANES, dtype=np.uint64)
        self._of_length = factors.integers(0, 1 << 64, _LANES, dtype=np.uint64)
        self._factors = factors.integers(0, 1 << 64, (_WORDS_MAX, _LANES), dtype=np.uint64)

    def of(self, data: UInt8Array, starts: Int64Array, lengths: Int64Array) -> KeyDigestRows:
        """One row per key, all of them lying in one buffer; no length is negative."""
        lanes = np.empty((_LANES, len(starts)), dtype=np.uint64)
        sizes = lengths.view(np.uint64)
        for lane in range(_LANES):
            lanes[lane] = self._start[lane] + self._of_length[lane] * sizes
        is_long = lengths > WORDWISE_BYTES_MAX
        has_long = bool(is_long.any())
        self._add_words(lanes, data, starts, np.where(is_long, 0, lengths) if has_long else lengths)
        lanes >>= np.uint64(32)
        digests = np.empty((len(starts), 2), dtype=np.uint64)
        digests[:, 0] = lanes[0] << np.uint64(32) | lanes[1]
        digests[:, 1] = lanes[2] << np.uint64(32) | lanes[3]
        for row in np.flatnonzero(is_long).tolist() if has_long else ():
            key = data[starts[row] : starts[row] + lengths[row]].tobytes()
            digest = hashlib.blake2b(key, digest_size=16, key=self._seed).digest()
            digests[row] = np.frombuffer(digest, np.uint64)
        return digests

    def _add_words(
        self, lanes: KeyDigestRows, data: UInt8Array, starts: Int64Array, lengths: Int64Array
    ) -> None:
        """Adds factor times word for every word; what a shorter key lacks adds nothing."""
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        for place in range(0, longest, 8):
            is_whole = place < shortest
            rows: Any = slice(None) if is_whole else np.flatnonzero(lengths > place)
            words = read_words(data, starts[rows] + place)
            if shortest < place + 8:
                words &= _KEEP[np.minimum(lengths[rows] - place, 8)]
            low, high = words & _LOW, words >> np.uint64(32)
            first, second = self._factors[place // 4], self._factors[place // 4 + 1]
            for lane in range(_LANES):
                lanes[lane, rows] += first[lane] * low + second[lane] * high


def read_words(data: UInt8Array, positions: Int64Array) -> KeyDigestRows:
    """The eight bytes at each position as one number; beyond the end of `data` they are zero."""
    last = len(data) - 8
    if len(positions) and last >= 0 and int(positions.max()) <= last:
        words: KeyDigestRows = np.ndarray((last + 1,), "<u8", buffer=data, strides=(1,))
        return words[positions]
    padded = np.zeros(len(data) + 16, dtype=np.uint8)
    padded[: len(data)] = data
    return read_words(padded, positions) if len(positions) else np.empty(0, dtype=np.uint64)
