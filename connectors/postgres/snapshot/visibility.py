"""Which transactions a snapshot of the database sees, told by their numbers."""

from dataclasses import dataclass

import numpy as np

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import DecodeError

EPOCH = 1 << 32
FIRST_NORMAL_XID = 3


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """What `pg_current_snapshot()` says, in numbers of 64 bits."""

    xmin: int
    """Every transaction below is over: it is seen, or was rolled back."""
    xmax: int
    """Neither this transaction nor one above is seen."""
    running: frozenset[int] = frozenset()
    """Those between that are not seen either."""

    @classmethod
    def parse(cls, text: str) -> "PgSnapshot":
        """That of a slot may end before it begins: its end follows the last transaction that the
        server saw commit while it made the slot, and its beginning goes on with all others. The
        beginning counts: PostgreSQL asks first whether a transaction is below it."""
        try:
            first, end, listed = text.split(":")
            xmin, xmax, running = (
                int(first),
                int(end),
                frozenset(map(int, filter(None, listed.split(",")))),
            )
        except ValueError:
            raise DecodeError("this is no snapshot of PostgreSQL", length=len(text)) from None
        return cls(xmin, max(xmin, xmax), running)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def sees(self, xids: Int64Array) -> BoolArray:
        """For transactions as the stream numbers them, in 32 bits. Those streamed lie within two
        thousand million of the snapshot, on either side, so that their upper half is certain."""
        full = self._in_64_bits(xids)
        is_over = full < self.xmax
        if self.running:
            is_over &= ~np.isin(full, np.fromiter(self.running, np.int64, len(self.running)))
        seen: BoolArray = is_over
        return seen

    @property
    def is_of_first_epoch(self) -> bool:
        """Whether numbers of transactions have never begun anew, so that 32 bits say it all, even
        of the oldest row."""
        return self.xmax < EPOCH

    def _in_64_bits(self, xids: Int64Array) -> Int64Array:
        distance = (xids - self.xmax + (EPOCH >> 1)) % EPOCH - (EPOCH >> 1)
        full: Int64Array = self.xmax + distance
        return full
