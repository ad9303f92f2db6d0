"""Splits events with the exact layout of our own encoder without parsing JSON."""

# In JSON without spaces the bytes `,"source":{` are always that field: inside a string the quotes
# would be escaped. If no column has this name, they end the row.

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.records.varint import Words
from headwater.core_log.rows.arrow_buffers import stretches

SOURCE, COMMITTED, OPERATION = b',"source":{', b',"ts_us":', b',"op":"'
NO_BEFORE, NO_AFTER = b'{"before":null,"after":{', b',"after":null'
BEFORE = b'{"before":{'
CLOSING = ord("}")
WORD_BYTES = 8
TIME_DIGITS = 16
"""Digits of microseconds between the years 2001 and 2286."""
ZEROS, TOPS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
TO_TOP = np.uint64(0x7676767676767676)
"""Sets the top bit of a byte that is greater than nine."""
LAYOUTS_MAX = 24
"""Number of widths of the part after the rows that are tried before the JSON parser is used."""


class EventLayout(NamedTuple):
    """Columns like those of `Event`, but one text for the row, whether it was `before` or
    `after`."""

    row: pa.StringArray
    is_deleted: BoolArray
    codes: UInt8Array
    committed_us: Int64Array


def cut(texts: pa.StringArray) -> EventLayout | None:
    """Returns the parts; None unless every event has our layout. No update may have a `before`."""
    if not len(texts) or texts.null_count:
        return None
    data, offsets = stretches(texts)
    if len(data) < len(texts) * (len(NO_BEFORE) + len(SOURCE) + WORD_BYTES):
        return None
    text = _Text(data, offsets[:-1], offsets[1:])
    sources = text.find(SOURCE, text.starts)
    if sources is None:
        return None
    times = text.find(COMMITTED, sources)
    operations = text.find(OPERATION, sources, is_last=True)  # only numbers follow it
    is_deleted = ~text.holds(NO_BEFORE, text.starts)
    if operations is None or times is None or not text.are_deletes(is_deleted, sources):
        return None
    if (times > operations).any():  # that is when the event was made, not its commit
        return None
    committed_us = text.numbers(times + len(COMMITTED))
    if committed_us is None or (data[offsets[1:] - 1] != CLOSING).any():
        return None
    starts = text.starts + np.where(is_deleted, len(BEFORE), len(NO_BEFORE)) - 1
    ends = sources - np.where(is_deleted, len(NO_AFTER), 0)
    codes = data[operations + len(OPERATION)]
    return EventLayout(_between(texts, starts, ends), is_deleted, codes, committed_us)


class _Text(NamedTuple):
    """Values in one buffer, and where each starts and ends."""

    data: UInt8Array
    starts: Int64Array
    ends: Int64Array

    @property
    def words(self) -> Words:
        """Returns the eight bytes at each place as one number."""
        count = len(self.data) - WORD_BYTES + 1
        found: Words = np.ndarray((count,), "<u8", buffer=self.data, strides=(1,))
        return found

    def are_deletes(self, chosen: BoolArray, sources: Int64Array) -> bool:
        starts, ends = self.starts[chosen], sources[chosen] - len(NO_AFTER)
        return bool(self.holds(BEFORE, starts).all() and self.holds(NO_AFTER, ends).all())

    def find(self, mark: bytes, after: Int64Array, *, is_last: bool = False) -> Int64Array | None:
        """Returns where `mark` first (or last) occurs in each value, from `after` on.

        One value is searched; the others are tested at the same distance from their ends, because
        few different widths follow a row.
        """
        found = np.full(len(self.starts), -1, np.int64)
        missing = np.arange(len(self.starts))
        for distance in self._distances(mark, after, found, is_last=is_last):
            places = self.ends[missing] - distance
            is_there = self.holds(mark, places) & (places >= after[missing])
            found[missing[is_there]] = places[is_there]
            missing = missing[~is_there]
        return found if not len(missing) else None

    def _distances(
        self, mark: bytes, after: Int64Array, found: Int64Array, *, is_last: bool
    ) -> Iterator[int]:
        for _ in range(LAYOUTS_MAX):
            row = int(np.argmin(found))
            if found[row] >= 0:
                return
            start, end = int(after[row]), int(self.ends[row])
            text = self.data[start:end].tobytes()
            place = text.rfind(mark) if is_last else text.find(mark)
            if place < 0:
                return
            yield end - start - place

    def holds(self, mark: bytes, places: Int64Array) -> BoolArray:
        """Returns whether `mark` is at each place; False for places outside."""
        last = len(self.data) - max(len(mark), WORD_BYTES)
        is_there: BoolArray = (places >= 0) & (places <= last)
        inside = np.where(is_there, places, 0)
        words = self.words
        for offset in range(0, len(mark), WORD_BYTES):
            part = mark[offset : offset + WORD_BYTES]
            kept = (1 << 8 * len(part)) - 1
            wanted = int.from_bytes(part, "little")
            near = np.minimum(inside + offset, len(words) - 1)
            is_there &= (words[near] & np.uint64(kept)) == np.uint64(wanted)
        return is_there

    def numbers(self, places: Int64Array) -> Int64Array | None:
        """Returns the numbers of sixteen digits at those places."""
        if (places + TIME_DIGITS >= self.ends).any():
            return None
        high, low = (self.words[places + offset] - ZEROS for offset in (0, WORD_BYTES))
        follows = self.data[places + TIME_DIGITS]
        is_ended = (follows == ord(",")) | (follows == CLOSING)
        if ((high | low | (high + TO_TOP) | (low + TO_TOP)) & TOPS).any() or not is_ended.all():
            return None
        numbers: Int64Array = (_eight_digits(high) * 10**WORD_BYTES + _eight_digits(low)).view(
            np.int64
        )
        return numbers


def _eight_digits(words: Words) -> Words:
    """Converts a digit per byte, the first one lowest, by joining neighbours three times."""
    pairs = (words * 10 + (words >> 8)) & 0x00FF00FF00FF00FF
    fours = (pairs * 100 + (pairs >> 16)) & 0x0000FFFF0000FFFF
    whole: Words = (fours * 10_000 + (fours >> 32)) & 0xFFFFFFFF
    return whole


def _between(texts: pa.StringArray, starts: Int64Array, ends: Int64Array) -> pa.StringArray:
    """Returns the ranges between, from one buffer: every other range is a row."""
    marks = np.stack((starts, ends), axis=1).reshape(-1)
    _, offsets, data = texts.buffers()
    first = int(np.frombuffer(offsets, np.int32)[texts.offset])
    bounds = pa.py_buffer(np.append(marks + first, marks[-1:] + first).astype(np.int32))
    pieces = pa.Array.from_buffers(pa.string(), len(marks), [None, bounds, data])
    return pieces.take(pa.array(np.arange(0, len(marks), 2)))
