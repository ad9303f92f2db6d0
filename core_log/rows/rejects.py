"""Finds the few bad rows of a batch by halving it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from headwater.core_log.foundation.errors import RowsRejected

Found = TypeVar("Found")
NAMED_MAX = 1_000
"""Limit of named rows: a batch of bad rows only is not divided down to its last row."""

UNFIT = (ValueError, ArithmeticError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Exceptions of conversions for values that do not fit; `RowsRejected` is made from them."""


def whole_or_rejected(
    row_count: int,
    convert: Callable[[int, int], Found],
    reason: Callable[[int], str],
    problem: str,
) -> Found:
    """Returns the result of `convert` for all rows; else raises `RowsRejected` with the reason for
    each bad one."""
    try:
        return convert(0, row_count)
    except UNFIT as error:
        bad = spoilers(row_count, convert)
        if not bad:
            raise RowsRejected(
                "rows fit one by one but not together", reasons={0: problem}
            ) from error
        reasons = {row: reason(row) for row in bad}
        # No `from`: Arrow's message quotes the values.
        raise RowsRejected(problem, reasons=reasons) from None


def spoilers(row_count: int, convert: Callable[[int, int], object]) -> Sequence[int]:
    """Yields the first rows that `convert` refuses alone."""
    found: list[int] = []
    waiting = [(0, row_count)]
    while waiting and len(found) < NAMED_MAX:
        start, end = waiting.pop()
        if start == end:
            continue
        try:
            convert(start, end)
        except UNFIT:
            if end - start == 1:
                found.append(start)
                continue
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return found
