"""Text of the server's is UTF-8, or is marked as what it is."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from headwater.connectors.postgres.wal.kernels import Kernels, NotUtf8
from headwater.connectors.postgres.wal.wal_batch import UNREADABLE
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, UInt8Array

FEW_ROWS = 8
"""For so few, calls that handle columns take longer than a look at every value."""

SHOWN = {0xDC00 + byte: f"<{byte:02x}>" for byte in range(0x80, 0x100)}
"""What Python's `surrogateescape` makes of bytes, to how they are shown."""


def all_values(
    kernels: Kernels,
    buffer: UInt8Array,
    bounds: Int32Array,
    missing: Mapping[int, BoolArray],
    bare: Collection[int] = (),
) -> tuple[tuple[pa.Array, ...], bool]:
    """As `Kernels.values`, and whether any of them is `UNREADABLE`."""
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
    """For every row the place of its value among those of `rows`; null where it is missing."""
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
