"""The four loops over bytes of a stream or a COPY: in NumPy, or compiled once that pays."""

from collections.abc import Collection, Mapping
from functools import cache
from struct import Struct
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.connectors.byte_spans import gather_plainly
from headwater.connectors.postgres.wal.wal_batch import UNREADABLE
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, Speed, chosen_speed

SLACK_BYTES = 16
"""Readable bytes that a buffer must have after the received data."""

FOREIGN = 0x80
"""Set in the tag of a frame that is not part of the stream: the server's notices and errors."""

TEXT, NULL, UNCHANGED = b"tnu"

COUNT_BYTES, LENGTH_BYTES = 2, 4
NO_VALUE = 0xFFFFFFFF
"""In COPY's binary format: in place of a row's number of values or a value's length, the end or
null."""

COPY_DATA, WAL_MESSAGE, KEEPALIVE = b"dwk"
TAG_AT, KIND_AT = 30, 5  # after the header of a frame, and that of a WAL data message

_LENGTH = Struct(">xI")

WORTH_BYTES = 8 << 20
FEW_ROWS = 8
"""For so few rows, calls on columns take longer than a check of every value."""

SHOWN = {0xDC00 + byte: f"<{byte:02x}>" for byte in range(0x80, 0x100)}
"""Maps bytes escaped by Python's `surrogateescape` to their displayed form."""

ROW = np.frombuffer(b"t\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()
TUPLE = np.frombuffer(b"\0\1\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()


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


class PlainKernels:
    def __init__(self, few_rows: int = FEW_ROWS) -> None:
        self._few_rows = few_rows

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        content = buffer[begin:end].tobytes()
        read, starts, at, last = _LENGTH.unpack_from, list[int](), 0, len(content) - 5
        add = starts.append
        while at <= last:
            after = at + 1 + read(content, at)[0]
            if after > len(content) or after < at + 5:
                break
            add(at)
            at = after
        places = np.array(starts, np.int64) + begin
        return FrameBounds(places, _tags(buffer, places), begin + at)

    def spans(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        rows, at = len(starts), starts
        bounds = np.empty((columns, 2 * rows), np.int32)
        marks = np.empty((columns, rows), np.uint8)
        are_texts = np.zeros(columns, np.bool_)
        lengths = _numbers(buffer)
        for column in range(columns):
            if (at >= stops).any():
                return FieldSpans(bounds, marks, are_texts, np.full(rows, -1))
            marks[column] = mark = buffer[at]
            if (mark == TEXT).all():
                are_texts[column] = True
                begins = at + 5
                at = begins + lengths[at + 1]
            elif not np.isin(mark, (TEXT, NULL, UNCHANGED)).all():
                return FieldSpans(bounds, marks, are_texts, np.full(rows, -1))
            else:
                is_text = mark == TEXT
                begins = at + np.where(is_text, 5, 1)
                at = begins + np.where(is_text, lengths[at + 1], 0)
            if (at > stops).any():
                return FieldSpans(bounds, marks, are_texts, np.full(rows, -1))
            bounds[column, 0::2], bounds[column, 1::2] = begins, at
        return FieldSpans(bounds, marks, are_texts, at)

    def values(
        self,
        buffer: UInt8Array,
        bounds: Int32Array,
        missing: Mapping[int, BoolArray],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        if bounds.shape[1] <= 2 * self._few_rows:
            return few_values(buffer, bounds, missing, bare)
        return tuple(
            each if column in bare else _texts_of(each)
            for column, each in enumerate(gather_plainly(buffer, bounds, missing))
        )

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        rows, numbers = len(starts), _numbers(buffer)
        bounds = np.zeros((columns, 2 * rows), np.int32)
        is_null = np.zeros((columns, rows), np.bool_)
        at = starts + COUNT_BYTES
        is_sound = bool((at <= stops).all() and (numbers[starts] >> 16 == columns).all())
        for column in range(columns if is_sound else 0):
            begins = at + LENGTH_BYTES
            if (begins > stops).any():
                is_sound = False
                break
            lengths = numbers[at].astype(np.int64)
            is_null[column] = lengths == NO_VALUE
            at = begins + np.where(is_null[column], 0, lengths)
            if (at > stops).any():
                is_sound = False
                break
            bounds[column, 0::2], bounds[column, 1::2] = begins, at
        is_sound = is_sound and bool((at == stops).all())
        return CopyFields(bounds, is_null, np.asarray(is_null.any(axis=1)), is_sound)


def _tags(buffer: UInt8Array, starts: Int64Array) -> UInt8Array:
    frames, kinds = buffer[starts], buffer[starts + KIND_AT]
    tags = np.where(kinds == WAL_MESSAGE, buffer[np.minimum(starts + TAG_AT, len(buffer) - 1)], 0)
    tags = np.where(kinds == KEEPALIVE, KEEPALIVE, tags)
    return np.where(frames == COPY_DATA, tags, frames | FOREIGN).astype(np.uint8)


def _numbers(buffer: UInt8Array) -> npt.NDArray[np.uint32]:
    """Returns the number that begins at every place."""
    return np.ndarray((len(buffer) - 3,), ">u4", buffer, 0, (1,))


@cache
def chosen_kernels() -> Kernels:
    """Returns the kernels of this process."""
    return LazyKernels() if chosen_speed() == "fast" else PlainKernels()


def kernels_of(speed: Speed, **choices: int) -> Kernels:
    if speed == "fast":
        from headwater.connectors.postgres.wal.kernels_numba import FastKernels

        return FastKernels(**choices)
    return PlainKernels(**choices)


class LazyKernels:
    """Counts the work, and loads the compiled kernels when they pay."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._chosen: CompiledSpeed[Kernels] = CompiledSpeed(
            PlainKernels(), _load_compiled, worth_bytes
        )

    @property
    def is_warm(self) -> bool:
        return self._chosen.is_warm

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        self._chosen.count(end - begin)
        return self._chosen.now.walk(buffer, begin, end)

    def spans(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        return self._chosen.now.spans(buffer, starts, stops, columns)

    def values(
        self,
        buffer: UInt8Array,
        bounds: Int32Array,
        missing: Mapping[int, BoolArray],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        return self._chosen.now.values(buffer, bounds, missing, bare)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        self._chosen.count(int(stops[-1] - starts[0]) if len(starts) else 0)
        return self._chosen.now.cells(buffer, starts, stops, columns)

    def wait(self) -> None:
        """Waits until the compiled kernels are loaded, if loading has begun."""
        self._chosen.wait()


def _load_compiled() -> Kernels:
    _exercise(kernels_of("fast", few_rows=0))
    return kernels_of("fast")


def _exercise(kernels: Kernels) -> None:
    """Calls every kernel once, because the first call compiles it."""
    kernels.walk(ROW, 0, 1)
    place = np.zeros(1, np.int64)
    spans = kernels.spans(ROW, place, place + 6, 1)
    kernels.values(ROW, spans.bounds, {})
    kernels.cells(TUPLE, place, place + 7, 1)


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


def _texts_of(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise NotUtf8 from None


def few_values(
    buffer: UInt8Array, bounds: Int32Array, missing: Mapping[int, BoolArray], bare: Collection[int]
) -> tuple[pa.Array, ...]:
    return _values(buffer, bounds, missing, bare, is_strict=True)


def check_utf8(texts: pa.StringArray) -> None:
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
