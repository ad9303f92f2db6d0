"""Arguments of the compiled join: one row of numbers per part, with addresses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding, as_text
from headwater.core_log.rows.text.datetime import PER_SECOND, UNIT_DIGITS, YEAR_0, YEAR_10000
from headwater.core_log.rows.text.number import PLAIN_MAX, PLAIN_MIN

KIND, DATA, OFFSETS, VALID, FIRST, SIZE, INDEXES, SCALE = range(8)
"""Columns of the table, per part: its kind; addresses of its bytes or numbers, offsets and validity
bitmap; the first value's index in bitmaps; its size if all rows share it, else the longest value
without text; address of dictionary indices; scale."""
CONSTANT = max(ValueEncoding) + 1
RAW, STRING, INTEGER, BOOLEAN, VARINT, DECIMAL, MOMENT, FLOAT = (
    int(each) for each in ValueEncoding
)
ROOM = {RAW: 4, STRING: 4, INTEGER: 20, BOOLEAN: 5, VARINT: 10, DECIMAL: 44, MOMENT: 32, FLOAT: 20}
SCALES = (2, 4, 8)
"""Scales to try for floats of at most seven digits before the point."""
WIDTHS = {BOOLEAN: 0, DECIMAL: 16}
"""Bytes per number if not eight; bits are addressed by index."""


def table_of(parts: Sequence[RowPart]) -> tuple[list[Any], Int64Array]:
    """Returns the objects to keep alive until all is written, and the description of each part."""
    held: list[Any] = []
    about = np.zeros((len(parts), 8), np.int64)
    for index, part in enumerate(parts):
        if isinstance(part, bytes):
            constant = np.frombuffer(part + bytes(8), np.uint8)
            held.append(constant)
            about[index, :SIZE] = (CONSTANT, constant.ctypes.data, 0, 0, 0)
            about[index, SIZE] = len(part)
            continue
        if part.kind == FLOAT and (numbers := _whole_numbers(part.values)) is not None:
            number, scale = numbers
            held += [number, part.values]
            bitmap = part.values.buffers()[0]
            about[index] = (
                FLOAT, number.ctypes.data, 0, bitmap.address if part.values.null_count else 0,
                part.values.offset, ROOM[FLOAT], 0, scale,
            )  # fmt: skip
            continue
        column, kind = _as_the_loop_has_it(part)
        about[index, KIND], about[index, SIZE] = kind, ROOM[kind]
        if pa.types.is_dictionary(column.type):
            indices = column.indices.cast(pa.int64())
            about[index, INDEXES] = indices.buffers()[1].address + 8 * indices.offset
            column = column.dictionary
            about[index, SIZE] = pc.max(pc.binary_length(column)).as_py() or 0
            held.append(indices)
        held.append(column)
        valid, *buffers = column.buffers()
        first = column.offset
        about[index, FIRST] = first
        about[index, VALID] = valid.address if column.null_count else 0
        if kind in (RAW, STRING):
            about[index, OFFSETS] = buffers[0].address + 4 * first
            about[index, DATA] = 0 if buffers[1] is None else buffers[1].address
            continue
        width = WIDTHS.get(kind, 8)
        about[index, DATA] = buffers[0].address + width * first
        if kind == DECIMAL:
            about[index, SCALE] = column.type.scale
        elif kind == MOMENT:
            about[index, SCALE] = UNIT_DIGITS[column.type.unit]
    return held, about


def _as_the_loop_has_it(part: RowColumn) -> RowColumn:
    """Returns numbers as 64 bits; values that the loop cannot write become text."""
    values, kind = part
    if kind in (INTEGER, VARINT) and values.type != pa.int64():
        return RowColumn(values.cast(pa.int64()), kind)
    if kind == FLOAT or (kind == DECIMAL and not _is_short(values)):
        return as_text(part)
    if kind == MOMENT and not _has_four_digits(values):
        return as_text(part)
    return part


def _whole_numbers(values: pa.Array) -> tuple[Int64Array, int] | None:
    """Returns floats as whole numbers of one scale, if this loses no digit: fifteen digits identify
    a float, so these are the fewest. Returns None for other floats."""
    if values.type != pa.float64() or not len(values):
        return None
    floats = values.fill_null(0.0).to_numpy() if values.null_count else values.to_numpy()
    sizes = np.abs(floats)
    if not (((sizes >= PLAIN_MIN) | (sizes == 0)) & (sizes < PLAIN_MAX)).all():
        return None
    if (np.signbit(floats) & (sizes == 0)).any():  # a negative zero
        return None
    for scale in SCALES:
        scaled = np.rint(floats * 10.0**scale)
        if (scaled / 10.0**scale == floats).all():
            return scaled.astype(np.int64), scale
    return None


def _is_short(values: pa.Array) -> bool:
    """Returns whether every number fits into the lower half of its sixteen bytes."""
    kind = values.type
    if not pa.types.is_decimal128(kind) or kind.scale < 0 or not len(values):
        return False
    halves = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
    lower, upper = halves[values.offset : values.offset + len(values)].T
    return bool((lower >> 63 == upper).all())


def _has_four_digits(values: pa.Array) -> bool:
    unit = values.type.unit
    if unit not in ("ms", "us"):
        return False
    numbers = pc.min_max(values.view(pa.int64()))
    least, most = numbers["min"].as_py(), numbers["max"].as_py()
    if least is None:
        return True
    return bool(YEAR_0 * PER_SECOND[unit] <= least and most < YEAR_10000 * PER_SECOND[unit])
