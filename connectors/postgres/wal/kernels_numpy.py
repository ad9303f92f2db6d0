"""The loops over bytes without a compiler: one step per message, all else by whole columns."""

from collections.abc import Collection, Mapping
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.connectors.byte_spans import gather_plainly
from headwater.connectors.postgres.wal.kernels import (
    COUNT_BYTES,
    FOREIGN,
    LENGTH_BYTES,
    NO_VALUE,
    NULL,
    TEXT,
    UNCHANGED,
    CopyFields,
    FieldSpans,
    FrameBounds,
)
from headwater.connectors.postgres.wal.utf8 import FEW_ROWS, few_values, texts_of
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array

COPY_DATA, WAL_MESSAGE, KEEPALIVE = b"dwk"
TAG_AT, KIND_AT = 30, 5  # after the header of a frame, and that of a WAL data message

_LENGTH = Struct(">xI")


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
            each if column in bare else texts_of(each)
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
