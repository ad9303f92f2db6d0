"""Cells of a row behind each other as bytes, row for row: JSON, records and their headers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from core_log.foundation.speed import Warming, chosen_speed
from core_log.records.json_escapes import quote
from core_log.records.record_codec import encode_varint
from core_log.records.row_parts import Column, Kind, Piece, as_text
from core_log.records.row_writer_arrow import join_plainly

FEW_ROWS = 32
"""For so few the compiled way needs longer to be told what to do than the other to do it."""
WORTH_BYTES = 16 << 20


class Ticks(NamedTuple):
    step: timedelta
    name: str
    """In Python's words, how many digits are written."""


EPOCH = datetime(1970, 1, 1)
TIMESPECS = {
    "s": Ticks(timedelta(seconds=1), "seconds"),
    "ms": Ticks(timedelta(milliseconds=1), "milliseconds"),
    "us": Ticks(timedelta(microseconds=1), "microseconds"),
}


class Join(Protocol):
    def __call__(
        self, pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes
    ) -> pa.Array: ...


def join(pieces: Sequence[Piece], rows: int, *, kind: pa.DataType, null: bytes = b"") -> pa.Array:
    """A column of text or of bytes. `null` is what stands for a value that is not there."""
    if rows <= FEW_ROWS:
        return join_few(pieces, rows, kind, null)
    chosen = _chosen()
    found = chosen.now(pieces, rows, kind, null)
    chosen.count(found.nbytes)
    return found


def join_few(pieces: Sequence[Piece], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Value by value: a call that handles a column takes longer than so few of them."""
    cells = [[each] * rows if isinstance(each, bytes) else _cells(each, null) for each in pieces]
    joined = [b"".join(row) for row in zip(*cells, strict=True)] if cells else [b""] * rows
    if kind == pa.binary():
        return pa.array(joined, kind)
    return pa.array([each.decode() for each in joined], kind)


def _cells(column: Column, null: bytes) -> list[bytes]:
    if column.kind == Kind.MOMENT and (written := _moments(column.values, null)) is not None:
        return written
    if column.kind not in WRITERS:
        column = as_text(column)
    write = WRITERS[column.kind]
    return [null if each is None else write(each) for each in column.values.to_pylist()]


def _moments(values: pa.Array, null: bytes) -> list[bytes] | None:
    """None where one is of a year that Python has no name for."""
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


WRITERS: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.RAW: lambda value: value if isinstance(value, bytes) else value.encode(),
    Kind.STRING: lambda value: quote(value).encode(),
    Kind.INTEGER: lambda value: b"%d" % value,
    Kind.BOOLEAN: lambda value: b"true" if value else b"false",
    Kind.VARINT: encode_varint,
    Kind.DECIMAL: lambda value: f'"{value:f}"'.encode(),
}
"""Of single values that are not null; moments are strings by then."""


@cache
def _chosen() -> Warming[Join]:
    return Warming(join_plainly, _compiled if chosen_speed() == "fast" else None, WORTH_BYTES)


def _compiled() -> Join:
    from core_log.compiled.row_writer_kernels import join_compiled

    # It is compiled when it is first called.
    some: list[Piece] = [Column(pa.array(["a"]), Kind.STRING), b"b"]
    join_compiled(some, 1, pa.string(), b"null")
    return join_compiled
