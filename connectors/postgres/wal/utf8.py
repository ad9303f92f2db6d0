"""Checks that the server's text is UTF-8, and marks other text."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from headwater.connectors.postgres.wal.kernels import Kernels, NotUtf8
from headwater.connectors.postgres.wal.wal_batch import UNREADABLE
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, UInt8Array

FEW_ROWS = 8
"""For so few rows, calls on columns take longer than a check of every value."""

SHOWN = {0xDC00 + byte: f"<{byte:02x}>" for byte in range(0x80, 0x100)}
"""Maps bytes escaped by Python's `surrogateescape` to their displayed form."""


def all_values(
    kernels: Kernels,
    buffer: UInt8Array,
    bounds: Int32Array,
    missing: Mapping[int, BoolArray],
    bare: Collection[int] = (),
) -> tuple[tuple[pa.Array, ...], bool]:
    """Returns the same as `Kernels.values`, and whether one of them is `UNREADABLE`."""
    try:
        return kernels.values(buffer, bounds, missing, bare), False
    except NotUtf8:
        return _values(buffer, bounds, missing, bare, is_strict=False), True


def texts_of(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise NotUtf8 from None


def few_values(
    buffer: UInt8Array, bounds: Int32Array, missing: Mapping[int, BoolArray], bare: Collection[int]
) -> tuple[pa.Array, ...]:
    return _values(buffer, bounds, missing, bare, is_strict=True)


def check(texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise NotUtf8 from None


def places_of(rows: BoolArray, is_missing: BoolArray) -> pa.Array:
    """Returns for every row the index of its value among those of `rows`; null if it is missing."""
    return pa.array((rows.cumsum() - 1).clip(0), mask=is_missing)


def _values(
    buffer: UInt8Array,
    bounds: Int32Array,
    missing: Mapping[int, BoolArray],
    bare: Collection[int],
    *,
    is_strict: bool,
) -> tuple[pa.Array, ...]:
    content, found = buffer.data, list[pa.Array]()
    for column, places in enumerate(bounds.tolist()):
        spans = zip(places[0::2], places[1::2], strict=True)
        values: list[str | bytes | None]
        try:
            if column in bare:
                values = [bytes(content[begin:end]) for begin, end in spans]
            else:
                values = [str(content[begin:end], "utf-8") for begin, end in spans]
        except UnicodeDecodeError:
            if is_strict:
                raise NotUtf8 from None
            spans = zip(places[0::2], places[1::2], strict=True)
            values = [_mark(bytes(content[begin:end])) for begin, end in spans]
        if (is_missing := missing.get(column)) is not None:
            values = [
                None if is_null else value
                for value, is_null in zip(values, is_missing.tolist(), strict=True)
            ]
        found.append(pa.array(values, pa.binary() if column in bare else pa.string()))
    return tuple(found)


def _mark(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return UNREADABLE + value.decode(errors="surrogateescape").translate(SHOWN)
