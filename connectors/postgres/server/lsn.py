"""LSNs (positions in the write-ahead log), as numbers and in PostgreSQL's text form."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import DecodeError

DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
HALF_DIGITS = 8
SHIFTS = np.arange(4 * (HALF_DIGITS - 1), -1, -4)


def lsn_text(lsn: int) -> str:
    """Returns `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_texts(lsns: npt.NDArray[np.int64]) -> pa.StringArray:
    """Returns the texts of many LSNs."""
    high, low = _hex(lsns >> 32), _hex(lsns & 0xFFFFFFFF)
    return pc.binary_join_element_wise(high, low, "/")


def parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    try:
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise DecodeError("the text is not an LSN", text=text) from None


def _hex(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """Returns hexadecimal digits without leading zeros."""
    digits = DIGITS[(numbers[:, None] >> SHIFTS) & 0xF]
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * HALF_DIGITS
    text = pa.Array.from_buffers(
        pa.string(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(digits.ravel())]
    )
    return pc.if_else(pa.array(numbers == 0), "0", pc.ascii_ltrim(text, "0"))


EPOCH = 1 << 32
FIRST_NORMAL_XID = 3


@dataclass(frozen=True, slots=True)
class PgSnapshot:
    """The result of `pg_current_snapshot()`, in numbers of 64 bits."""

    xmin: int
    """Every transaction below is over: it is seen, or was rolled back."""
    xmax: int
    """Neither this transaction nor a later one is seen."""
    running: frozenset[int] = frozenset()
    """Running transactions in between, which are not seen either."""

    @classmethod
    def parse(cls, text: str) -> "PgSnapshot":
        """Parses a snapshot. That of a slot may end before it begins: its end follows the last
        commit that the server saw while it created the slot, and its beginning moves on with all
        others. The beginning counts, because PostgreSQL first checks whether a transaction is
        below it."""
        try:
            first, end, listed = text.split(":")
            xmin, xmax, running = (
                int(first),
                int(end),
                frozenset(map(int, filter(None, listed.split(",")))),
            )
        except ValueError:
            raise DecodeError(
                "the text is not a snapshot of PostgreSQL", length=len(text)
            ) from None
        return cls(xmin, max(xmin, xmax), running)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def sees(self, xids: Int64Array) -> BoolArray:
        """Returns whether it sees transactions by their 32-bit ids in the stream. They are within
        two thousand million of the snapshot, on either side, so the upper half is known."""
        full = self._in_64_bits(xids)
        is_over = full < self.xmax
        if self.running:
            is_over &= ~np.isin(full, np.fromiter(self.running, np.int64, len(self.running)))
        seen: BoolArray = is_over
        return seen

    @property
    def is_of_first_epoch(self) -> bool:
        """Whether transaction ids have never wrapped around, so that 32 bits are enough even for
        the oldest row."""
        return self.xmax < EPOCH

    def _in_64_bits(self, xids: Int64Array) -> Int64Array:
        distance = (xids - self.xmax + (EPOCH >> 1)) % EPOCH - (EPOCH >> 1)
        full: Int64Array = self.xmax + distance
        return full
