"""The four loops over bytes that there are twice: in plain Python, and compiled."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

SLACK_BYTES = 16
"""How far behind what was received a buffer must still be readable."""

FOREIGN = 0x80
"""Set in the tag of a frame that is not of the stream: the server's notices and errors."""

TEXT, NULL, UNCHANGED = b"tnu"

COUNT_BYTES, LENGTH_BYTES = 2, 4
NO_VALUE = 0xFFFFFFFF
"""In COPY's binary format: what says how many values a row has, and how long each of them is, or
that it is null."""


class NotUtf8(Exception):
    """Among the values is text of another encoding, or of none."""


class FrameBounds(NamedTuple):
    """Whole frames, one behind the other."""

    starts: Int64Array
    tags: UInt8Array
    """Which message each brings; `k` of a keepalive; else the frame's own letter, `FOREIGN`."""
    stop: int
    """Behind the last whole one."""


class FieldSpans(NamedTuple):
    """Where in the buffer the values of rows stand, column by column."""

    bounds: Int32Array
    """Per column the begin and end of every row's value, by turns; both the same without one."""
    marks: UInt8Array
    """Per column and row `TEXT`, `NULL` or `UNCHANGED`."""
    are_texts: BoolArray
    """Per column, whether every row has a value."""
    after: Int64Array
    """Where each row ends; -1 where it breaks its own format."""


class CopyFields(NamedTuple):
    """Where in the rows of a COPY the values stand, as in `FieldSpans`."""

    bounds: Int32Array
    is_null: BoolArray
    have_nulls: BoolArray
    is_sound: bool
    """Whether every row has as many values as there are columns, and ends behind the last."""


class Kernels(Protocol):
    """Neither writes to the buffer; all may read `SLACK_BYTES` beyond what they are given."""

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        """The frames that stand whole between `begin` and `end`."""
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
        """Copies values out of the buffer, of one row or more; null where they are missing. They
        are text, but for the `bare` columns, whose bytes are whatever they are. Raises
        `NotUtf8`."""
        ...

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        """Splits rows of COPY's binary format, each within its bounds, into their values."""
        ...
