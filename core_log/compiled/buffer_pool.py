"""Large buffers that are used again: memory that the system gives anew costs more to touch than to
fill, as each of its pages is made when it is first written to."""

import sys
import threading

import numpy as np

from headwater.core_log.foundation.array_types import UInt8Array

LARGE_BYTES = 1 << 20
"""What is smaller the allocator keeps by itself."""
KEPT_BYTES_MAX = 24 << 20
STEP_BYTES = 1 << 20
TIMES_LARGER_MAX = 2


class BufferPool:
    """Whose it is, the count of references to a buffer says: Arrow's columns and slices of them
    hold one for as long as they live."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[UInt8Array] = []
        self._choosing = threading.Lock()

    def of(self, size: int) -> UInt8Array:
        """At least so many bytes, with anything in them."""
        if size < LARGE_BYTES:
            return np.empty(size, np.uint8)
        with self._choosing:
            for place, held in enumerate(map(len, self._kept)):
                fits = size <= held <= TIMES_LARGER_MAX * size
                if fits and _references(self._kept, place) == UNUSED:
                    return self._kept[place]
            made: UInt8Array = np.empty(-(-size // STEP_BYTES) * STEP_BYTES, np.uint8)
            self._kept.append(made)
            while sum(map(len, self._kept)) > self._kept_bytes_max:
                del self._kept[0]  # where it is in use, it goes when that ends
            return made

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._kept))


def _references(kept: list[UInt8Array], place: int) -> int:
    return sys.getrefcount(kept[place])


UNUSED = _references([np.empty(1, np.uint8)], 0)
"""How many there are to what only stands in a list, which is a matter of the interpreter."""
