"""The loops over bytes of a stream or a snapshot: in NumPy, or compiled once that pays."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headwater.connectors.byte_spans import gather_plainly
from headwater.connectors.mysql.binlog.json_document import document_text
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, Speed, chosen_speed

SLACK_BYTES = 16
"""Readable bytes that a buffer must have after its data."""
BUFFER_BYTES_MAX = (1 << 31) - 1 - SLACK_BYTES
"""Places in a buffer have 31 bits."""
PACKET_HEAD_BYTES, PACKET_BYTES_MAX = 4, 0xFFFFFF
NULL_CELL, LENGTH_2, LENGTH_3, LENGTH_8 = 0xFB, 0xFC, 0xFD, 0xFE
"""First bytes of a cell of the text protocol that are not its length."""

WORTH_BYTES = 8 << 20


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


class PlainMysqlKernels:
    def rows(
        self, buffer: UInt8Array, begins: Int64Array, ends: Int64Array, layout: RowLayout
    ) -> RowSpans:
        images = _images_of(layout)
        content, counts, row = buffer.data.cast("B"), np.zeros(len(begins), np.int64), 0
        bounds_of = list(zip(begins.tolist(), ends.tolist(), strict=True))
        for chunk, (begin, end) in enumerate(bounds_of):
            found = _walk(content, begin, end, images, row)
            counts[chunk] = found
            if found < 0:
                break
            row += found
        bounds = np.zeros((len(layout.widths), 2 * row), np.int32)
        is_null = np.zeros((len(layout.widths), row), np.bool_)
        for image in images:
            for form in image.forms.values():
                _fill(form, bounds, is_null)
        return RowSpans(counts, bounds, is_null)

    def packets(self, buffer: UInt8Array, end: int) -> Packets:
        content, at, starts = buffer[:end].tobytes(), 0, list[int]()
        read, add, last = int.from_bytes, starts.append, end - PACKET_HEAD_BYTES
        while at <= last:
            length = read(content[at : at + 3], "little")
            after = at + PACKET_HEAD_BYTES + length
            if after > end or length == PACKET_BYTES_MAX:
                break
            add(at)
            at = after
        places = np.array(starts, np.int64)
        return Packets(places + PACKET_HEAD_BYTES, np.append(places[1:], at)[: len(places)], at)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CellSpans:
        rows, at = len(starts), starts
        bounds = np.zeros((columns, 2 * rows), np.int32)
        is_null = np.zeros((columns, rows), np.bool_)
        longs = np.ndarray((len(buffer) - 7,), "<u8", buffer, 0, (1,))
        for column in range(columns):
            if (at >= stops).any():
                return CellSpans(bounds, is_null, False)
            first = buffer[at].astype(np.int64)
            begins, lengths = at + 1, first
            if (first >= NULL_CELL).any():
                is_null[column] = first == NULL_CELL
                lengths = np.where(first >= NULL_CELL, 0, first)
                for mark, width in ((LENGTH_2, 2), (LENGTH_3, 3), (LENGTH_8, 8)):
                    if (is_so := first == mark).any():
                        sizes = longs[begins] & np.uint64((1 << 8 * width) - 1)
                        lengths = np.where(is_so, sizes.astype(np.int64), lengths)
                        begins = np.where(is_so, begins + width, begins)
            ends = begins + lengths
            if ((lengths < 0) | (ends > stops) | (first > LENGTH_8)).any():
                return CellSpans(bounds, is_null, False)
            bounds[column, 0::2], bounds[column, 1::2] = begins, ends
            at = ends
        return CellSpans(bounds, is_null, bool((at == stops).all()))

    def gather(
        self, buffer: UInt8Array, bounds: Int32Array, is_null: BoolArray
    ) -> Sequence[pa.BinaryArray]:
        return gather_plainly(buffer, bounds, missing_of(is_null))

    def documents(self, values: pa.BinaryArray) -> pa.StringArray:
        texts = [None if each is None else document_text(each) for each in values.to_pylist()]
        return pa.array(texts, pa.string())


class _Form(NamedTuple):
    """Images with the same nulls: only values with a length have to be stepped over."""

    hops: tuple[tuple[int, int], ...]
    """Bytes before a value with a length, and the bytes of that length."""
    tail: int
    """Bytes after the last of them."""
    cells: tuple[tuple[int, int, int, int], ...]
    """Per column: its place, the hop before it, its distance from there, its width."""
    nulls: tuple[tuple[int, int, int], ...]
    """The same for nulls, which have no width."""
    rows: list[int]
    marks: list[int]
    """Per row its begin behind the bitmap, and the begin and end of each value with a length."""


class _Image(NamedTuple):
    first: int
    """Place of its first column among those of all images."""
    widths: tuple[int, ...]
    bitmap_bytes: int
    forms: dict[bytes, _Form]


def _images_of(layout: RowLayout) -> list[_Image]:
    found, first = list[_Image](), 0
    for count in layout.images.tolist():
        widths = tuple(layout.widths[first : first + count].tolist())
        found.append(_Image(first, widths, (count + 7) // 8, {}))
        first += count
    return found


def _walk(
    content: memoryview, begin: int, end: int, images: Sequence[_Image], first_row: int
) -> int:
    at, row = begin, first_row
    from_bytes = int.from_bytes
    while at < end:
        start = at
        for image in images:
            bits = bytes(content[at : at + image.bitmap_bytes])
            at += image.bitmap_bytes
            form = image.forms.get(bits)
            if form is None:
                if at > end:
                    return -1
                form = image.forms[bits] = _form_of(image, bits)
            form.rows.append(row)
            add = form.marks.append
            add(at)
            for skip, width in form.hops:
                at += skip
                if at >= end:
                    return -1
                length = (
                    content[at]
                    if width == 1
                    else from_bytes(content[at : min(at + width, end)], "little")
                )
                at += width
                add(at)
                at += length
                add(at)
            at += form.tail
        if at > end or at == start:
            return -1
        row += 1
    return row - first_row


def _form_of(image: _Image, bits: bytes) -> _Form:
    hops, distance = list[tuple[int, int]](), 0
    cells, nulls = list[tuple[int, int, int, int]](), list[tuple[int, int, int]]()
    for at, width in enumerate(image.widths):
        place = image.first + at
        if bits[at // 8] >> at % 8 & 1:
            nulls.append((place, len(hops), distance))
        elif width < 0:
            cells.append((place, len(hops) + 1, 0, width))
            hops.append((distance, -width))
            distance = 0
        else:
            cells.append((place, len(hops), distance, width))
            distance += width
    return _Form(tuple(hops), distance, tuple(cells), tuple(nulls), [], [])


def _fill(form: _Form, bounds: Int32Array, is_null: BoolArray) -> None:
    rows = np.array(form.rows, np.int64)
    marks = np.array(form.marks, np.int64)  # a damaged length leads beyond four bytes
    # A row that is not whole has fewer marks, and ends the walk.
    width = 1 + 2 * len(form.hops)
    whole = len(marks) // width
    marks, rows = marks[: whole * width].reshape(-1, width), rows[:whole]
    is_known = rows < is_null.shape[1]
    marks, rows = marks[is_known], rows[is_known]
    for place, hop, distance, size in form.cells:
        if size < 0:
            bounds[place, 2 * rows] = marks[:, 2 * hop - 1]
            bounds[place, 2 * rows + 1] = marks[:, 2 * hop]
        else:
            begins = marks[:, 2 * hop] + distance
            bounds[place, 2 * rows], bounds[place, 2 * rows + 1] = begins, begins + size
    for place, hop, distance in form.nulls:
        begins = marks[:, 2 * hop] + distance
        bounds[place, 2 * rows] = bounds[place, 2 * rows + 1] = begins
        is_null[place, rows] = True


@cache
def chosen_kernels() -> MysqlKernels:
    """Returns the kernels of this process."""
    return LazyMysqlKernels() if chosen_speed() == "fast" else PlainMysqlKernels()


def kernels_of(speed: Speed) -> MysqlKernels:
    if speed == "fast":
        from headwater.connectors.mysql.kernels.compiled import FastMysqlKernels

        return FastMysqlKernels()
    return PlainMysqlKernels()


class LazyMysqlKernels:
    """Counts the work, and loads the compiled kernels when they pay."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._chosen: CompiledSpeed[MysqlKernels] = CompiledSpeed(
            PlainMysqlKernels(), _load_compiled, worth_bytes
        )

    @property
    def is_warm(self) -> bool:
        return self._chosen.is_warm

    def rows(
        self, buffer: UInt8Array, begins: Int64Array, ends: Int64Array, layout: RowLayout
    ) -> RowSpans:
        self._chosen.count(int(ends[-1] - begins[0]) if len(begins) else 0)
        return self._chosen.now.rows(buffer, begins, ends, layout)

    def packets(self, buffer: UInt8Array, end: int) -> Packets:
        self._chosen.count(end)
        return self._chosen.now.packets(buffer, end)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CellSpans:
        return self._chosen.now.cells(buffer, starts, stops, columns)

    def gather(
        self, buffer: UInt8Array, bounds: Int32Array, is_null: BoolArray
    ) -> Sequence[pa.BinaryArray]:
        return self._chosen.now.gather(buffer, bounds, is_null)

    def documents(self, values: pa.BinaryArray) -> pa.StringArray:
        return self._chosen.now.documents(values)

    def wait(self) -> None:
        """Waits until the compiled kernels are loaded, if loading has begun."""
        self._chosen.wait()


def _load_compiled() -> MysqlKernels:
    kernels: MysqlKernels = import_module(
        "headwater.connectors.mysql.kernels.compiled"
    ).FastMysqlKernels()
    _exercise(kernels)
    return kernels


def _exercise(kernels: MysqlKernels) -> None:
    """Calls every kernel once, because the first call compiles it: with bytes that may not be
    changed, as events have them, and with those of a connection's buffer."""
    for is_writable in (False, True):
        buffer = with_slack([b"\1\0\0\0\0"])
        if is_writable:
            buffer = buffer.copy()
        place, layout = np.zeros(1, np.int64), RowLayout(*2 * [np.ones(1, np.int32)])
        spans = kernels.rows(buffer, place, place + 2, layout)
        packets = kernels.packets(buffer, 5)
        cells = kernels.cells(buffer, packets.starts, packets.stops, 1)
        for each in (spans, cells):
            kernels.gather(buffer, each.bounds, each.is_null)
    kernels.documents(pa.array([b"\4\0", None], pa.binary()))
