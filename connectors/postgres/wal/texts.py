"""Text of the server's is UTF-8, or is refused."""

from collections.abc import Mapping

import pyarrow as pa

from connectors.postgres.connecting import NOT_UTF8_HINT
from connectors.postgres.wal.burst import Bytes
from connectors.postgres.wal.kernels import Flags, Int32s
from core_log.errors import DecodeError

FEW_ROWS = 8
"""For so few, calls that handle columns take longer than a look at every value."""

PROBLEM = "the server sent text that is not UTF-8"


def texts_of(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise DecodeError(PROBLEM, hint=NOT_UTF8_HINT) from None


def few_texts(
    buffer: Bytes, bounds: Int32s, missing: Mapping[int, Flags]
) -> tuple[pa.StringArray, ...]:
    content, found = buffer.data, list[pa.StringArray]()
    for column, places in enumerate(bounds.tolist()):
        spans = zip(places[0::2], places[1::2], strict=True)
        try:
            values: list[str | None] = [str(content[begin:end], "utf-8") for begin, end in spans]
        except UnicodeDecodeError:
            raise DecodeError(PROBLEM, hint=NOT_UTF8_HINT) from None
        if (is_missing := missing.get(column)) is not None:
            values = [
                None if is_null else value
                for value, is_null in zip(values, is_missing.tolist(), strict=True)
            ]
        found.append(pa.array(values, pa.string()))
    return tuple(found)


def check(texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise DecodeError(PROBLEM, hint=NOT_UTF8_HINT) from None


def places_of(rows: Flags, is_missing: Flags) -> pa.Array:
    """For every row the place of its value among those of `rows`; null where it is missing."""
    return pa.array((rows.cumsum() - 1).clip(0), mask=is_missing)
