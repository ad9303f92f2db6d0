"""Finds the values of a column that another type does not hold, without a look at each."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.rows.rejects import UNFIT


def find_unfit(column: pa.Array, kind: pa.DataType) -> BoolArray:
    """Returns for each value whether a cast refuses it."""
    if _is_castable(column, kind):
        return np.zeros(len(column), np.bool_)
    found = _find_numbers(column, kind)
    return _find_by_halves(column, kind) if found is None else found


def _find_numbers(column: pa.Array, kind: pa.DataType) -> BoolArray | None:
    """Compares numbers with what comes back from a cast that cuts them off; None if that does not
    decide it."""
    if not (_is_number(column.type) and _is_number(kind)):
        return None
    try:
        back = column.cast(kind, safe=False).cast(column.type, safe=False)
    except UNFIT:
        return None
    is_same = pc.fill_null(pc.equal(back, column), fill_value=True)
    return ~np.asarray(is_same) if _is_castable(column.filter(is_same), kind) else None


def _find_by_halves(column: pa.Array, kind: pa.DataType) -> BoolArray:
    found = np.zeros(len(column), np.bool_)
    waiting = [(0, len(column))]
    while waiting:
        start, end = waiting.pop()
        if _is_castable(column.slice(start, end - start), kind):
            continue
        if end - start == 1:
            found[start] = True
            continue
        middle = (start + end) // 2
        waiting += [(middle, end), (start, middle)]
    return found


def _is_castable(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except UNFIT:
        return False
    return True


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
