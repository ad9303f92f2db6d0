"""Writes the parts of each row one after another as bytes: JSON, records and their headers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.speed import CompiledSpeed, chosen_speed
from headwater.core_log.records.json_escapes import quote
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.row_parts import (
    RowColumn,
    RowPart,
    ValueEncoding,
    as_text,
    join_plainly,
)

FEW_ROWS = 32
"""For so few rows, preparing the compiled writer takes longer than the whole work of the other."""
WORTH_BYTES = 16 << 20


class EncodingTicks(NamedTuple):
    step: timedelta
    name: str
    """Number of digits, by Python's name of it."""


EPOCH = datetime(1970, 1, 1)
TIMESPECS = {
    "s": EncodingTicks(timedelta(seconds=1), "seconds"),
    "ms": EncodingTicks(timedelta(milliseconds=1), "milliseconds"),
    "us": EncodingTicks(timedelta(microseconds=1), "microseconds"),
}


class RowWriter(Protocol):
    def __call__(
        self, parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes
    ) -> pa.Array: ...


def join(parts: Sequence[RowPart], rows: int, *, kind: pa.DataType, null: bytes = b"") -> pa.Array:
    """Returns a column of text or of bytes. `null` is written for a missing value."""
    if rows <= FEW_ROWS:
        return join_few(parts, rows, kind, null)
    chosen = _choose()
    found = chosen.now(parts, rows, kind, null)
    chosen.count(found.nbytes)
    return found


def join_few(parts: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Joins value by value: a call on a column takes longer than so few values."""
    columns = [
        [each] * rows if isinstance(each, bytes) else _encode_values(each, null) for each in parts
    ]
    joined = [b"".join(row) for row in zip(*columns, strict=True)] if columns else [b""] * rows
    if kind == pa.binary():
        return pa.array(joined, kind)
    return pa.array([each.decode() for each in joined], kind)


def _encode_values(column: RowColumn, null: bytes) -> list[bytes]:
    if (
        column.kind == ValueEncoding.MOMENT
        and (written := _moments(column.values, null)) is not None
    ):
        return written
    if column.kind not in WRITERS:
        column = as_text(column)
    write = WRITERS[column.kind]
    return [null if each is None else write(each) for each in column.values.to_pylist()]


def _moments(values: pa.Array, null: bytes) -> list[bytes] | None:
    """Returns the timestamps as text; None if one has a year that Python's datetime does not
    support."""
    if values.type.unit not in TIMESPECS:
        return None
    ticks = TIMESPECS[values.type.unit]
    try:
        return [
            null
            if each is None
            else f'"{(EPOCH + each * ticks.step).isoformat(timespec=ticks.name)}Z"'.encode()
            for each in values.view(pa.int64()).to_pylist()
        ]
    except OverflowError:
        return None


WRITERS: Mapping[ValueEncoding, Callable[[Any], bytes]] = {
    ValueEncoding.RAW: lambda value: value if isinstance(value, bytes) else value.encode(),
    ValueEncoding.STRING: lambda value: quote(value).encode(),
    ValueEncoding.INTEGER: lambda value: b"%d" % value,
    ValueEncoding.BOOLEAN: lambda value: b"true" if value else b"false",
    ValueEncoding.VARINT: encode_varint,
    ValueEncoding.DECIMAL: lambda value: f'"{value:f}"'.encode(),
}
"""Writers of single values that are not null; timestamps are strings already."""


@cache
def _choose() -> CompiledSpeed[RowWriter]:
    return CompiledSpeed(
        join_plainly, _load_compiled if chosen_speed() == "fast" else None, WORTH_BYTES
    )


def _load_compiled() -> RowWriter:
    from headwater.core_log.compiled.row_writer_kernels import join_compiled

    # It is compiled at the first call.
    some: list[RowPart] = [RowColumn(pa.array(["a"]), ValueEncoding.STRING), b"b"]
    join_compiled(some, 1, pa.string(), b"null")
    return join_compiled
