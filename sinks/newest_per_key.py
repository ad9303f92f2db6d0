"""Which changes of a stretch are the newest of their keys, found in columns."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.int64]

CODE_MAX = 1 << 62
GAPS_MAX = 8
"""So many times as many codes as rows is no waste yet."""


def key_codes(keys: pa.RecordBatch) -> tuple[Codes, int]:
    """A number below the second for every row, the same for rows with the same key."""
    if keys.num_columns == 1 and (close := _close_numbers(keys.column(0))) is not None:
        return close
    codes: Codes = np.zeros(keys.num_rows, dtype=np.int64)
    count = 1
    for column in keys.columns:
        encoded: Any = _plain(column).dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        if count > CODE_MAX // size:
            codes, count = _close_gaps(codes)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        count *= size
    if count > GAPS_MAX * keys.num_rows + 1_024:
        codes, count = _close_gaps(codes)
    return codes, count


def newest(keys: pa.RecordBatch) -> pa.Int64Array | None:
    """Where the last row of every key stands, in order; None when no key comes twice."""
    rows = keys.num_rows
    if rows < 2:
        return None
    codes, count = key_codes(keys)
    last: Codes = np.full(count, -1, dtype=np.int64)
    last[codes] = np.arange(rows)  # of several values for one place the last one stays
    last = last[last >= 0]
    return None if len(last) == rows else pa.array(np.sort(last))


def _plain(column: pa.Array) -> pa.Array:
    """Lists and structs as text: Arrow knows no codes for them."""
    if not pa.types.is_nested(column.type):
        return column
    texts = [None if value is None else repr(value) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _close_numbers(column: pa.Array) -> tuple[Codes, int] | None:
    """Numbers that lie close together, as most keys do, are their own codes."""
    if not len(column) or not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    values: Codes = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    return (values - low, span) if span <= GAPS_MAX * len(values) + 1_024 else None


def _close_gaps(codes: Codes) -> tuple[Codes, int]:
    distinct, dense = np.unique(codes, return_inverse=True)
    return dense.reshape(-1).astype(np.int64), len(distinct)
