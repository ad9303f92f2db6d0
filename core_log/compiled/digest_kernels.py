"""Compiled digests of columns of bytes, and their mixing: one pass each."""

from typing import Any

import numpy as np

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.records.varint import Words

WORD = 8
STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
MIX_1, MIX_2 = np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB)


@CompiledFunction
def _mix(bits: Any) -> Any:
    bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
    return bits ^ (bits >> np.uint64(31))


@CompiledFunction
def mix(numbers: Words, found: Words) -> Any:
    """Fills `found` with the mixed digests."""
    for row in range(len(numbers)):
        found[row] = _mix(numbers[row])


@CompiledFunction
def gather(
    data: UInt8Array, words: Words, offsets: Int64Array, bytes_max: int, found: Words
) -> Any:
    """Digests word by word. `words` are the eight bytes at each byte; values longer than
    `bytes_max` count by length only."""
    for row in range(len(found)):
        at, end = offsets[row], offsets[row + 1]
        total = np.uint64(end - at) * STEP
        if end - at <= bytes_max:
            while end - at >= WORD:
                total = _mix(total * MIX_1 + words[at])
                at += WORD
            if at < end:
                word = np.uint64(0)
                for index in range(end - at):
                    word |= np.uint64(data[at + index]) << np.uint64(8 * index)
                total = _mix(total * MIX_1 + word)
        found[row] = total
