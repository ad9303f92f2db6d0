"""The interface of the loops over bytes, which exist in plain Python and compiled."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

SLACK_BYTES = 16
"""Readable bytes that a buffer must have after its data."""
BUFFER_BYTES_MAX = (1 << 31) - 1 - SLACK_BYTES
"""Places in a buffer have 31 bits."""
PACKET_HEAD_BYTES, PACKET_BYTES_MAX = 4, 0xFFFFFF
NULL_CELL, LENGTH_2, LENGTH_3, LENGTH_8 = 0xFB, 0xFC, 0xFD, 0xFE
"""First bytes of a cell of the text protocol that are not its length."""


class RowLayout(NamedTuple):
    """The layout of the rows of an event: one or two images, each with a bitmap of its nulls."""

    images: Int32Array
    """Number of columns of each image."""
    widths: Int32Array
    """Per column of all images its bytes; negative for a length of so many bytes before it."""


class RowSpans(NamedTuple):
    """The places of values in rows, column by column of all images."""

    counts: Int64Array
    """Rows of each chunk; -1 if its last row is not whole."""
    bounds: Int32Array
    """Per column the begin and end of every row's value, in turn; both are the same for a null."""
    is_null: BoolArray


class Packets(NamedTuple):
    """The bounds of whole packets, without their heads."""

    starts: Int64Array
    stops: Int64Array
    stop: int
    """End of the last whole one."""


class CellSpans(NamedTuple):
    """The places of cells in rows of the text protocol, as in `RowSpans`."""

    bounds: Int32Array
    is_null: BoolArray
    is_sound: bool
    """Whether every row ends after its last column."""


class MysqlKernels(Protocol):
    """The loops. None writes to the buffer; all may read `SLACK_BYTES` beyond their range."""

    def rows(
        self, buffer: UInt8Array, begins: Int64Array, ends: Int64Array, layout: RowLayout
    ) -> RowSpans:
        """Splits chunks of rows that follow one another into their values."""
        ...

    def packets(self, buffer: UInt8Array, end: int) -> Packets:
        """Returns the whole packets before `end`, up to the first of the largest size: the next
        packet continues it."""
        ...

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CellSpans:
        """Splits rows of the text protocol into their cells."""
        ...

    def gather(
        self, buffer: UInt8Array, bounds: Int32Array, is_null: BoolArray
    ) -> Sequence[pa.BinaryArray]:
        """Copies values out of the buffer, of at least one row."""
        ...

    def documents(self, values: pa.BinaryArray) -> pa.StringArray:
        """Returns the server's text of JSON documents."""
        ...


def with_slack(data: Sequence[bytes]) -> UInt8Array:
    """Returns a buffer of these bytes, with the slack."""
    return np.frombuffer(b"".join([*data, bytes(SLACK_BYTES)]), np.uint8)


def missing_of(is_null: BoolArray) -> dict[int, BoolArray]:
    """Returns the nulls of the columns that have any."""
    return {column: nulls for column, nulls in enumerate(is_null) if nulls.any()}
