"""The interface of the four loops over bytes, which exist in NumPy and compiled."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

SLACK_BYTES = 16
"""Readable bytes that a buffer must have after the received data."""

FOREIGN = 0x80
"""Set in the tag of a frame that is not part of the stream: the server's notices and errors."""

TEXT, NULL, UNCHANGED = b"tnu"

COUNT_BYTES, LENGTH_BYTES = 2, 4
NO_VALUE = 0xFFFFFFFF
"""In COPY's binary format: in place of a row's number of values or a value's length, the end or
null."""


class NotUtf8(Exception):
    """A value has text that is not UTF-8."""


class FrameBounds(NamedTuple):
    """The bounds of whole frames."""

    starts: Int64Array
    tags: UInt8Array
    """The message of each frame; `k` for a keepalive; else the frame's own letter with
    `FOREIGN`."""
    stop: int
    """End of the last whole one."""


class FieldSpans(NamedTuple):
    """The places of values in the buffer, column by column."""

    bounds: Int32Array
    """Per column the begin and end of every row's value, in turn; both are the same without one."""
    marks: UInt8Array
    """`TEXT`, `NULL` or `UNCHANGED`, per column and row."""
    are_texts: BoolArray
    """Whether every row has a value, per column."""
    after: Int64Array
    """End of each row; -1 if its format is invalid."""


class CopyFields(NamedTuple):
    """The places of values in rows of a COPY, as in `FieldSpans`."""

    bounds: Int32Array
    is_null: BoolArray
    have_nulls: BoolArray
    is_sound: bool
    """Whether every row has as many values as there are columns, and ends after the last."""


class Kernels(Protocol):
    """The loops. None writes to the buffer; all may read `SLACK_BYTES` beyond their range."""

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        """Returns the whole frames between `begin` and `end`."""
        ...

    def spans(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        """Splits rows, each within its bounds, into their values."""
        ...

    def values(
        self,
        buffer: UInt8Array,
        bounds: Int32Array,
        missing: Mapping[int, BoolArray],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        """Copies values out of the buffer, of at least one row; null if they are missing. They are
        text, except in the `bare` columns, whose bytes are not checked. Raises `NotUtf8`."""
        ...

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        """Splits rows of COPY's binary format, each within its bounds, into their values."""
        ...
