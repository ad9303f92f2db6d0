"""Digests of 128 bits for a column of keys: four independent 32-bit hashes, random in each run."""

import hashlib
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array

KeyDigestRows = npt.NDArray[Any]
"""Two unsigned 64-bit words per key."""

WORDWISE_BYTES_MAX = 256
"""Longer keys are hashed one by one, which costs little compared with their size."""

SEED_BYTES = 16
_LANES = 4
_WORDS_MAX = WORDWISE_BYTES_MAX // 4
_LOW = 0xFFFFFFFF
_KEEP = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


class KeyDigests:
    """Multilinear hashing over 32-bit words: two given keys collide by chance once in 2^128 runs.

    This holds for all keys, because the factors are random and secret. Unlike a fixed hash it
    cannot be attacked by chosen keys.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = seed or token_bytes(SEED_BYTES)
        factors = np.random.Generator(np.random.Philox(int.from_bytes(self._seed)))
        self._start = factors.integers(0, 1 << 64, _LANES, dtype=np.uint64)
        self._of_length = factors.integers(0, 1 << 64, _LANES, dtype=np.uint64)
        self._factors = factors.integers(0, 1 << 64, (_WORDS_MAX, _LANES), dtype=np.uint64)

    def of(self, data: UInt8Array, starts: Int64Array, lengths: Int64Array) -> KeyDigestRows:
        """Returns one row per key; all keys are in one buffer, and no length is negative."""
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
        """Adds factor times word for every word; missing words of a shorter key add nothing."""
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        for index in range(0, longest, 8):
            is_whole = index < shortest
            rows: Any = slice(None) if is_whole else np.flatnonzero(lengths > index)
            words = read_words(data, starts[rows] + index)
            if shortest < index + 8:
                words &= _KEEP[np.minimum(lengths[rows] - index, 8)]
            low, high = words & _LOW, words >> np.uint64(32)
            first, second = self._factors[index // 4], self._factors[index // 4 + 1]
            for lane in range(_LANES):
                lanes[lane, rows] += first[lane] * low + second[lane] * high


def read_words(data: UInt8Array, positions: Int64Array) -> KeyDigestRows:
    """Returns the eight bytes at each position as one number; bytes beyond the end of `data` are
    zero."""
    last = len(data) - 8
    if len(positions) and last >= 0 and int(positions.max()) <= last:
        words: KeyDigestRows = np.ndarray((last + 1,), "<u8", buffer=data, strides=(1,))
        return words[positions]
    padded = np.zeros(len(data) + 16, dtype=np.uint8)
    padded[: len(data)] = data
    return read_words(padded, positions) if len(positions) else np.empty(0, dtype=np.uint64)


ENTRY_BYTES_MAX = 40
"""Per key: 24 for digest and offset, and between 6 and 12 for the hash table."""

_SLOTS_MIN = 1 << 10

OffsetRows = npt.NDArray[Any]


class NewestOffsets:
    """Newest offset per key: entries are stored densely in order, and a hash table of their numbers
    finds them.

    Growing rebuilds only the table of numbers. Memory for the entries is reserved at once; pages
    that were never written cost nothing.
    """

    def __init__(self, entries_max: int) -> None:
        self.entries_max = entries_max
        self.count = 0
        self._digests: KeyDigestRows = np.empty((entries_max, 2), dtype=np.uint64)
        self._offsets: Int64Array = np.empty(entries_max, dtype=np.int64)
        self._slots: OffsetRows = np.zeros(_SLOTS_MIN, dtype=np.int32)  # number + 1; 0 is free

    @property
    def size_bytes(self) -> int:
        return self.count * (16 + 8) + self._slots.nbytes

    def put(self, digests: KeyDigestRows, offsets: Int64Array) -> int:
        """Stores keys at ascending offsets; a repeated key gets the new offset. Returns how many
        fitted."""
        start = 0
        while start < len(digests):
            rest, room = len(digests) - start, self.entries_max - self.count
            if room < rest and room <= self.entries_max >> 6:
                break
            end = start + min(rest, room)
            self._make_room(self.count + end - start)
            numbers = self._find(digests[start:end], may_add=True)
            self._offsets[numbers] = offsets[start:end]  # the last of equal rows counts
            start = end
        return start

    def knows(self, digests: KeyDigestRows) -> npt.NDArray[np.bool_]:
        return self._find(digests, may_add=False) >= 0

    def surviving(self) -> Int64Array:
        """Returns all newest offsets, ascending. Only `knows` may be called after this."""
        held = self._offsets[: self.count]
        held.sort()
        return held

    def _make_room(self, entries: int) -> None:
        slots = len(self._slots)
        while entries * 3 > slots * 2:
            slots *= 2
        if slots == len(self._slots):
            return
        self._slots = np.zeros(0, dtype=np.int32)  # frees the old table before the new one is made
        self._slots = np.zeros(slots, dtype=np.int32)
        block = 1 << 16
        for start in range(0, self.count, block):
            self._place(start, min(start + block, self.count))

    def _place(self, start: int, end: int) -> None:
        """Enters known, distinct digests into a new table."""
        todo = np.arange(start, end)
        slot, step = self._first_slots(self._digests[start:end])
        mask = len(self._slots) - 1
        while len(todo):
            free = np.flatnonzero(self._slots[slot] == 0)
            self._slots[slot[free]] = todo[free] + 1
            rest = np.flatnonzero(self._slots[slot] != todo + 1)
            todo, slot, step = todo[rest], (slot[rest] + step[rest]) & mask, step[rest]

    def _find(self, digests: KeyDigestRows, *, may_add: bool) -> OffsetRows:
        """Returns the number of each digest's entry, -1 if there is none."""
        numbers = np.full(len(digests), -1, dtype=np.int64)
        todo, mask = np.arange(len(digests)), len(self._slots) - 1
        slot, step = self._first_slots(digests)
        while len(todo):
            held = self._slots[slot]
            if may_add:
                free = np.flatnonzero(held == 0)
                if len(free):
                    self._add(slot[free], digests.take(todo[free], axis=0))
                    held = self._slots[slot]
            else:
                used = np.flatnonzero(held)
                todo, slot, step, held = todo[used], slot[used], step[used], held[used]
            number = held.astype(np.int64) - 1
            known = self._digests.take(number, axis=0)  # several times as fast as indexing rows
            wanted = digests if len(todo) == len(digests) else digests.take(todo, axis=0)
            same = (known[:, 0] == wanted[:, 0]) & (known[:, 1] == wanted[:, 1])
            numbers[todo[same]] = number[same]
            rest = np.flatnonzero(~same)
            todo, slot, step = todo[rest], (slot[rest] + step[rest]) & mask, step[rest]
        return numbers

    def _add(self, slots: OffsetRows, digests: KeyDigestRows) -> None:
        """Gives each free slot to one of the entries that want it; the others find it taken."""
        claims = -1 - np.arange(len(slots), dtype=np.int32)
        self._slots[slots] = claims
        won = np.flatnonzero(self._slots[slots] == claims)
        count = self.count + len(won)
        self._digests[self.count : count] = digests.take(won, axis=0)
        self._slots[slots[won]] = np.arange(self.count + 1, count + 1, dtype=np.int32)
        self.count = count

    def _first_slots(self, digests: KeyDigestRows) -> tuple[OffsetRows, OffsetRows]:
        """Returns the first slot and the step; an odd step reaches every slot."""
        mask = len(self._slots) - 1
        return (digests[:, 0] & mask).astype(np.int64), (digests[:, 1] & mask | 1).astype(np.int64)
