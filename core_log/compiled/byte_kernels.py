"""Compiled passes over columns of bytes: digests, UTF-8 checks, copies of texts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import Int32Array, Int64Array, UInt8Array
from headwater.core_log.records.varint import Words

WORD_BYTES = 8
TOPS = np.uint64(0x8080808080808080)
STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
MIX_1, MIX_2 = np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB)

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


@_compiled
def _mix(bits: Any) -> Any:
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))


@_compiled
def mix(numbers: Words, found: Words) -> Any:
    """Fills `found` with the mixed digests."""
    for row in range(len(numbers)):
        found[row] = _mix(numbers[row])


@_compiled
def digest(
    data: UInt8Array, words: Words, offsets: Int64Array, bytes_max: int, found: Words
) -> Any:
    """Digests word by word. `words` are the eight bytes at each byte; values longer than
    `bytes_max` count by length only."""
    for row in range(len(found)):
        at, end = offsets[row], offsets[row + 1]
        total = np.uint64(end - at) * STEP
        if end - at <= bytes_max:
            while end - at >= WORD_BYTES:
                total = _mix(total * MIX_1 + words[at])
                at += WORD_BYTES
            if at < end:
                word = np.uint64(0)
                for index in range(end - at):
                    word |= np.uint64(data[at + index]) << np.uint64(8 * index)
                total = _mix(total * MIX_1 + word)
        found[row] = total


@_compiled
def are_text(data: UInt8Array, words: Words, starts: Int64Array, stops: Int64Array) -> Any:
    """Returns whether each of these ranges is UTF-8. `words` are the eight bytes at every byte."""
    for row in range(len(starts)):  # noqa: SIM110 - a generator would not be compiled
        if not _is_text(data, words, starts[row], stops[row]):
            return False
    return True


@_compiled
def _is_text(  # noqa: C901 - one table of the standard
    data: UInt8Array, words: Words, at: int, stop: int
) -> Any:
    """Returns whether these bytes are UTF-8."""
    while at < stop:
        while at + WORD_BYTES <= stop and words[at] & TOPS == 0:
            at += WORD_BYTES
        if at >= stop:
            break
        lead = np.int64(data[at])
        if lead < 0x80:
            at += 1
            continue
        low, high = np.int64(0x80), np.int64(0xBF)
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = np.int64(0xA0)
            elif lead == 0xED:
                high = np.int64(0x9F)
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = np.int64(0x90)
            elif lead == 0xF4:
                high = np.int64(0x8F)
        else:
            return False
        if at + more >= stop or not low <= data[at + 1] <= high:
            return False
        for index in range(at + 2, at + more + 1):
            if data[index] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@_compiled
def gather_texts(words: Words, bounds: Int32Array, offsets: Int32Array, texts: Words) -> Any:
    """Copies the bytes between the bounds to the offsets. Each word is stored whole; the next one
    overwrites the surplus."""
    for row in range(len(offsets) - 1):
        at, index, end = bounds[2 * row], offsets[row], offsets[row + 1]
        while index < end:
            texts[index] = words[at]
            index += WORD_BYTES
            at += WORD_BYTES
