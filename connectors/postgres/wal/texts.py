"""Values by where they stand in a buffer, copied out of it as columns of text."""

import numpy as np
import pyarrow as pa

from connectors.postgres.wal.burst import Bytes, Int64s
from connectors.postgres.wal.kernels import Flags, Int32s
from core_log.errors import DecodeError

HINT = "set client_encoding to UTF8, and keep what is no UTF-8 in columns of bytea"


class Cutter:
    """Takes columns out of one buffer.

    Values and the gaps between them are one array over that very buffer, without a copy; the
    values are then every second element of it.
    """

    def __init__(self, buffer: Bytes) -> None:
        self._buffer = pa.py_buffer(buffer)

    def texts(self, bounds: Int32s, picks: pa.Array) -> pa.StringArray:
        """Elements `picks` of the values and gaps between `bounds`; null where a pick is."""
        values_and_gaps = pa.Array.from_buffers(
            pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), self._buffer]
        )
        try:
            return values_and_gaps.take(picks).cast(pa.string())
        except pa.ArrowInvalid:
            raise DecodeError("the server sent text that is not UTF-8", hint=HINT) from None


def every_value(count: int, is_missing: Flags | None = None) -> pa.Array:
    """Picks all values, but null where there is none."""
    return value_of(np.arange(count), is_missing)


def value_of(rows: Int64s, is_missing: Flags | None = None) -> pa.Array:
    """Picks the values of `rows`."""
    return pa.array((2 * rows).astype(np.int32), mask=is_missing)
