"""The loops over bytes without a compiler: one step per message, all else by whole columns."""

from collections.abc import Mapping
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.postgres.wal.burst import Bytes, Int64s
from connectors.postgres.wal.kernels import (
    FOREIGN,
    NULL,
    TEXT,
    UNCHANGED,
    Cells,
    Flags,
    Frames,
    Int32s,
    Spans,
)
from connectors.postgres.wal.texts import FEW_ROWS, few_texts, texts_of

COPY_DATA, WAL_MESSAGE, KEEPALIVE = b"dwk"
TAG_AT, KIND_AT = 30, 5  # behind the head of a frame, and that of a message of the log
TAB, LINE_END, BACKSLASH, CAPITAL_N = b"\t\n\\N"

_LENGTH = Struct(">xI")


class PlainKernels:
    def __init__(self, few_rows: int = FEW_ROWS) -> None:
        self._few_rows = few_rows

    def walk(self, buffer: Bytes, begin: int, end: int) -> Frames:
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
        return Frames(places, _tags(buffer, places), begin + at)

    def spans(self, buffer: Bytes, starts: Int64s, stops: Int64s, columns: int) -> Spans:
        rows, at = len(starts), starts
        bounds = np.empty((columns, 2 * rows), np.int32)
        marks = np.empty((columns, rows), np.uint8)
        are_texts = np.zeros(columns, np.bool_)
        lengths = _numbers(buffer)
        for column in range(columns):
            if (at >= stops).any():
                return Spans(bounds, marks, are_texts, np.full(rows, -1))
            marks[column] = mark = buffer[at]
            if (mark == TEXT).all():
                are_texts[column] = True
                begins = at + 5
                at = begins + lengths[at + 1]
            elif not np.isin(mark, (TEXT, NULL, UNCHANGED)).all():
                return Spans(bounds, marks, are_texts, np.full(rows, -1))
            else:
                is_text = mark == TEXT
                begins = at + np.where(is_text, 5, 1)
                at = begins + np.where(is_text, lengths[at + 1], 0)
            if (at > stops).any():
                return Spans(bounds, marks, are_texts, np.full(rows, -1))
            bounds[column, 0::2], bounds[column, 1::2] = begins, at
        return Spans(bounds, marks, are_texts, at)

    def texts(
        self, buffer: Bytes, bounds: Int32s, missing: Mapping[int, Flags]
    ) -> tuple[pa.StringArray, ...]:
        """Values and the gaps between them are one array over the buffer itself; the values are
        every other element of it."""
        length = bounds.shape[1]
        if length <= 2 * self._few_rows:
            return few_texts(buffer, bounds, missing)
        content = pa.py_buffer(buffer)
        places, found = np.arange(0, length, 2, dtype=np.int32), list[pa.StringArray]()
        all_of_them = pa.array(places)
        for column, places_of_column in enumerate(bounds):
            is_missing = missing.get(column)
            picks = all_of_them if is_missing is None else pa.array(places, mask=is_missing)
            values_and_gaps = pa.Array.from_buffers(
                pa.binary(), length - 1, [None, pa.py_buffer(places_of_column), content]
            )
            found.append(texts_of(values_and_gaps.take(picks)))
        return tuple(found)

    def cells(self, buffer: Bytes, end: int, columns: int) -> Cells:
        content = buffer[:end]
        ends = np.flatnonzero((content == TAB) | (content == LINE_END))
        rows = len(ends) // columns
        if end == 0 or not _is_table(content, ends, columns):
            nothing = np.zeros(columns, np.bool_)
            empty = np.empty((columns, 0))
            return Cells(empty.astype(np.int32), empty.astype(bool), nothing, nothing, end == 0)
        bounds = np.empty((columns, 2 * rows), np.int32)
        bounds[:, 1::2] = ends.reshape(rows, columns).T
        bounds[1:, 0::2] = bounds[:-1, 1::2] + 1
        bounds[0, 0], bounds[0, 2::2] = 0, bounds[-1, 1:-1:2] + 1
        begins, stops = bounds[:, 0::2], bounds[:, 1::2]
        is_null = (
            (stops - begins == 2)
            & (buffer[begins] == BACKSLASH)
            & (buffer[begins + 1] == CAPITAL_N)
        )
        return Cells(bounds, is_null, is_null.any(axis=1), _escaped(content, ends, is_null), True)


def _tags(buffer: Bytes, starts: Int64s) -> Bytes:
    frames, kinds = buffer[starts], buffer[starts + KIND_AT]
    tags = np.where(kinds == WAL_MESSAGE, buffer[np.minimum(starts + TAG_AT, len(buffer) - 1)], 0)
    tags = np.where(kinds == KEEPALIVE, KEEPALIVE, tags)
    return np.where(frames == COPY_DATA, tags, frames | FOREIGN).astype(np.uint8)


def _numbers(buffer: Bytes) -> npt.NDArray[np.uint32]:
    """At every place the number that begins there."""
    return np.ndarray((len(buffer) - 3,), ">u4", buffer, 0, (1,))


def _is_table(content: Bytes, ends: Int64s, columns: int) -> bool:
    """Whether the separators make whole lines of as many values each."""
    if len(ends) % columns or not len(ends) or ends[-1] != len(content) - 1:
        return False
    marks = content[ends].reshape(-1, columns)
    return bool((marks[:, -1] == LINE_END).all() and (marks[:, :-1] == TAB).all())


def _escaped(content: Bytes, ends: Int64s, is_null: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Per column whether a backslash stands in it but for those of nulls."""
    columns = len(is_null)
    places = np.flatnonzero(content == BACKSLASH)
    counts = np.bincount(np.searchsorted(ends, places) % columns, minlength=columns)
    return np.asarray(counts > is_null.sum(axis=1))
