"""Finds the few bad rows of a batch by halving it."""

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from headwater.core_log.foundation.errors import RowsRejected

Found = TypeVar("Found")
NAMED_MAX = 1_000
"""Limit of named rows: a batch of bad rows only is not divided down to its last row."""

UNFIT = (ValueError, ArithmeticError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Exceptions of conversions for values that do not fit; `RowsRejected` is made from them."""
Failure = type[Exception] | tuple[type[Exception], ...]


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
        bad = failing_rows(row_count, convert, rows_max=NAMED_MAX)
        if not bad:
            raise RowsRejected(
                "rows fit one by one but not together", reasons={0: problem}
            ) from error
        reasons = {row: reason(row) for row in bad}
        # No `from`: Arrow's message quotes the values.
        raise RowsRejected(problem, reasons=reasons) from None


def failing_rows(
    row_count: int,
    attempt: Callable[[int, int], object],
    failure: Failure = UNFIT,
    *,
    rows_max: int | None = None,
) -> dict[int, Exception]:
    """Returns the first rows, in order, on which `attempt` (start, end) fails alone, with its
    errors."""
    failed: dict[int, Exception] = {}
    waiting = [(0, row_count)]
    while waiting and (rows_max is None or len(failed) < rows_max):
        start, end = waiting.pop()
        if start == end:
            continue
        try:
            attempt(start, end)
        except failure as error:
            if end - start == 1:
                failed[start] = error
                continue
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return failed
