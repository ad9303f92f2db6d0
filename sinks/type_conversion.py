"""Conversion of values to another type, and detection of values that it changes or refuses."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.rows.rejects import UNFIT, failing_rows
from headwater.core_log.rows.text.datetime import database_text, times_to_text

CastFunction = Callable[[pa.Array, pa.DataType], pa.Array]
FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the nearest values of `kind`; raises one of `FAILURES` if Arrow has none."""
    if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        # Arrow requires room for every number of the type, not only for those that occur.
        column = column.cast(pa.decimal128(20, 0))
    elif pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        # Arrow's own cast is sometimes off by one bit; text becomes the nearest number.
        column = column.cast(pa.string())
    elif pa.types.is_string(kind) and pa.types.is_time(column.type):
        return times_to_text(column)
    elif (
        pa.types.is_string(kind) and _is_moment(column.type) and not pa.types.is_date64(column.type)
    ):
        return database_text(column)
    return column.cast(kind, safe=True)


def find_changed(column: pa.Array, kind: pa.DataType, *, by: CastFunction = cast) -> list[int]:
    """Returns the places of values that change when converted to `kind` and back. Any value may
    become text if it has a text form."""
    if column.null_count == len(column):
        return []
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kinds = (column.type, kind)
    if any(map(_is_moment, kinds)) and any(map(_is_number, kinds)):
        return _indices(column.is_valid())  # Arrow counts days and microseconds from 1970
    try:
        there = by(column, kind)
        if pa.types.is_string(kind):
            return []
        return _indices(
            pc.and_(column.is_valid(), pc.invert(_same(column, by(there, column.type))))
        )
    except FAILURES:
        if len(column) == 1:
            return [0]
    half = len(column) // 2
    later = find_changed(column.slice(half), kind, by=by)
    return find_changed(column.slice(0, half), kind, by=by) + [half + index for index in later]


def find_unfit(column: pa.Array, kind: pa.DataType) -> BoolArray:
    """Returns for each value whether a cast refuses it."""
    if _is_castable(column, kind):
        return np.zeros(len(column), np.bool_)
    if not _is_castable(column.slice(0, 0), kind):  # of no value
        return np.asarray(column.is_valid())
    found = _find_numbers(column, kind)
    return _find_by_halves(column, kind) if found is None else found


def _same(column: pa.Array, back: pa.Array) -> pa.BooleanArray:
    if pa.types.is_nested(column.type):
        pairs = zip(column.to_pylist(), back.to_pylist(), strict=True)
        return pa.array([repr(one) == repr(other) for one, other in pairs], pa.bool_())
    same = pc.fill_null(pc.equal(column, back), False)
    if not pa.types.is_floating(column.type):
        return same
    return pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(column), pc.is_nan(back)), False))


def _is_moment(kind: pa.DataType) -> bool:
    tests = (pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _indices(mask: pa.BooleanArray) -> list[int]:
    found: list[int] = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
    return found


def _find_numbers(column: pa.Array, kind: pa.DataType) -> BoolArray | None:
    """Compares numbers with what comes back from a cast that cuts them off; None if that does not
    decide it."""
    if not (_is_number(column.type) and _is_number(kind)):
        return None
    if not _is_castable(pa.array([0], column.type), kind):  # whatever the value is
        return np.asarray(column.is_valid())
    try:
        is_same = pc.fill_null(_comes_back(column, kind), fill_value=True)
    except UNFIT:
        return None
    return ~np.asarray(is_same) if _is_castable(column.filter(is_same), kind) else None


def _comes_back(column: pa.Array, kind: pa.DataType) -> pa.Array:
    wide = _widened(column.type)
    back = column.cast(_widened(kind), safe=False).cast(wide, safe=False)
    is_same = pc.equal(back, column.cast(wide))
    if pa.types.is_decimal(kind):
        limit = pa.scalar(10.0 ** (kind.precision - kind.scale))
        is_same = pc.and_(is_same, pc.less(pc.abs(column.cast(pa.float64())), limit))
    return is_same


def _widened(kind: pa.DataType) -> pa.DataType:
    """Returns a type to which any number can be cast back."""
    if pa.types.is_decimal256(kind):
        return pa.decimal256(76, kind.scale)
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def _find_by_halves(column: pa.Array, kind: pa.DataType) -> BoolArray:
    found = np.zeros(len(column), np.bool_)
    failed = failing_rows(
        len(column), lambda start, end: _check_cast(column.slice(start, end - start), kind)
    )
    found[list(failed)] = True
    return found


def _is_castable(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        _check_cast(column, kind)
    except UNFIT:
        return False
    return True


def _check_cast(column: pa.Array, kind: pa.DataType) -> None:
    """Raises one of `UNFIT`; a column of nulls only can have any type."""
    if not column.null_count == len(column) > 0:
        cast(column, kind)
