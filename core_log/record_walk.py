"""The walk from record to record of `record_layout`, compiled."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from core_log.varint import Bytes, Int64s

VARINT_BITS_MAX = 35
"""Lengths of records fit into 31 bits; what goes on is none."""

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(
    cache=True, nogil=True, boundscheck=False
)


@_compiled
def walk(data: Bytes, position: Any, limit: int, starts: Int64s) -> Any:
    """Fills `starts`; false where the section ends before the last record, or a length is none."""
    for record in range(len(starts)):
        starts[record] = position
        length, shift = np.uint64(0), 0
        while True:
            if position >= limit or shift > VARINT_BITS_MAX:
                return False
            byte = np.uint64(data[position])
            length |= (byte & np.uint64(0x7F)) << np.uint64(shift)
            position += 1
            shift += 7
            if byte < 0x80:
                break
        if length & np.uint64(1):  # negative
            return False
        position += np.int64(length >> np.uint64(1))
    return True
