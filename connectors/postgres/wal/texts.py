"""Text of the server's is UTF-8, or is refused."""

import pyarrow as pa

from connectors.postgres.wal.kernels import Flags
from core_log.errors import DecodeError

PROBLEM = "the server sent text that is not UTF-8"
HINT = "keep what is no UTF-8 in columns of bytea"


def texts_of(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise DecodeError(PROBLEM, hint=HINT) from None


def check(texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise DecodeError(PROBLEM, hint=HINT) from None


def places_of(rows: Flags, is_missing: Flags) -> pa.Array:
    """For every row the place of its value among those of `rows`; null where it is missing."""
    return pa.array((rows.cumsum() - 1).clip(0), mask=is_missing)
