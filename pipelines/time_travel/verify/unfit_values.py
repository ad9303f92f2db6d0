"""Finds the values of a column that another type does not hold, without a look at each."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.rows.rejects import UNFIT, failing_rows
from headwater.sinks.type_conversion import cast


def find_unfit(column: pa.Array, kind: pa.DataType) -> BoolArray:
    """Returns for each value whether a cast refuses it."""
    if _is_castable(column, kind):
        return np.zeros(len(column), np.bool_)
    if not _is_castable(column.slice(0, 0), kind):  # of no value
        return np.asarray(column.is_valid())
    found = _find_numbers(column, kind)
    return _find_by_halves(column, kind) if found is None else found


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


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
