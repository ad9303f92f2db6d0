"""The key range of every file, and the ranges that are rewritten as one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array

Bound = int | str
"""A value of the key's first column, exactly as written: text, or a number. Dates and times are
counted from zero, decimals in units of their smallest step."""

TEXT_LETTERS_MAX = 200
"""Longer text keys have no range, because readers keep only truncated bounds."""
EXACT = Context(prec=80)
DAY_US = 86_400_000_000
INT64_MAX = (1 << 63) - 1
FIRST_DAY, LAST_DAY = -719_162, 2_932_897
"""The range of years 1 to 9999, which readers of four-digit years know."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table. A file without a range may hold any key."""

    path: str
    """Relative to the table's root."""
    rows: int
    size: int
    low: Bound | None = None
    high: Bound | None = None
    """With `low`, the smallest and the largest value of the key's first column."""
    partition: tuple[str | None, ...] = ()
    """Values of the partition columns."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys, and the files with keys of it. Ranges never overlap."""

    low: Bound | None
    """Inclusive; None: from the first key on."""
    high: Bound | None
    """Exclusive; None: to the last key."""
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def has_ranges(kind: pa.DataType) -> bool:
    """Returns whether values are kept exactly enough to locate a key."""
    is_text = pa.types.is_string(kind)
    return bool(is_text or pa.types.is_integer(_counted_type(kind)) or pa.types.is_decimal128(kind))


def cells_of(files: Sequence[DataFile]) -> list[KeyRange]:
    """Returns the key ranges. Files with overlapping ranges share one; a gap belongs to the lower
    one."""
    if not files or any(each.low is None or each.high is None for each in files):
        return [KeyRange(None, None, tuple(files))]
    groups: list[list[DataFile]] = []
    reach: Any = None
    for each in sorted(files, key=lambda file: _order(file.low)):
        if groups and _order(each.low) <= _order(reach):
            groups[-1].append(each)
            reach = max(reach, each.high, key=_order)
        else:
            groups.append([each])
            reach = each.high
    lows = [None, *(group[0].low for group in groups[1:])]
    highs = [*lows[1:], None]
    return [
        KeyRange(low, high, tuple(group))
        for low, high, group in zip(lows, highs, groups, strict=True)
    ]


def with_gaps(cells: Sequence[KeyRange], keys: pa.Array, *, rows_min: int) -> list[KeyRange]:
    """The same, and what lies above the files of a cell is one of its own where at least so many
    of the keys fall into it."""
    kind = keys.type
    largest = 10**kind.precision - 1 if pa.types.is_decimal(kind) else INT64_MAX
    halves = [half for cell in cells for half in _above_files(cell, largest)]
    counts = np.bincount(assign(keys, halves), minlength=len(halves)).tolist()
    found: list[KeyRange] = []
    for half, count in zip(halves, counts, strict=True):
        if half.files or not found or count >= rows_min:
            found.append(half)
        else:
            found[-1] = replace(found[-1], high=half.high)
    return found


def _above_files(cell: KeyRange, largest: int) -> list[KeyRange]:
    """`largest`: the number above which nothing can be."""
    highs = [each.high for each in cell.files]
    if not highs or any(each is None for each in highs):
        return [cell]
    top: Any = max(highs, key=_order)
    if top == largest:
        return [cell]
    edge: Bound = f"{top}\0" if isinstance(top, str) else top + 1
    if cell.high is not None and _order(edge) >= _order(cell.high):
        return [cell]
    return [replace(cell, high=edge), KeyRange(edge, cell.high, ())]


def split_large(
    cells: Sequence[KeyRange], sample: pa.Array, *, rows: int, rows_max: int, cores: int = 1
) -> list[KeyRange]:
    """Returns the ranges with large ones split, if `rows` changes like `sample` come.

    Parts of a range share its files, so all parts are rewritten or none. If there are more than
    `cores`, there are so many that no core waits for the others at the end.
    """
    found: list[KeyRange] = []
    places = assign(sample, cells)
    for number, cell in enumerate(cells):
        mine = sample.filter(pa.array(places == number))
        coming = rows * len(mine) // max(len(sample), 1)
        parts = -(-(cell.rows + coming) // rows_max)
        if parts > cores:
            parts = -(-parts // cores) * cores
        found += _parts(cell, mine, coming, parts) if parts > 1 else [cell]
    return found


def _parts(cell: KeyRange, sample: pa.Array, coming: int, parts: int) -> list[KeyRange]:
    """Splits where changes and existing rows are about equal in number on both sides."""
    weighted = [(value, coming / max(len(sample), 1)) for value in bounds_in(sample)]
    for each in cell.files:
        if each.low is not None:
            weighted += [(each.low, each.rows / 2), (each.high, each.rows / 2)]
    weighted.sort(key=lambda pair: _order(pair[0]))
    total, sum_, cuts = sum(weight for _, weight in weighted), 0.0, list[Any]()
    for value, weight in weighted:
        if sum_ >= total * (len(cuts) + 1) / parts and value not in cuts:
            cuts.append(value)
        sum_ += weight
    inside = [cut for cut in cuts if cell.low is None or _order(cut) > _order(cell.low)]
    lows, highs = [cell.low, *inside], [*inside, cell.high]
    return [KeyRange(low, high, cell.files) for low, high in zip(lows, highs, strict=True)]


def assign(keys: pa.Array, cells: Sequence[KeyRange]) -> Int64Array:
    """Returns the number of the range of each key."""
    bounds = [cell.low for cell in cells[1:] if cell.low is not None]
    if not bounds:
        return np.zeros(len(keys), dtype=np.int64)
    keys = _in_numbers(keys)
    if pa.types.is_integer(keys.type):
        values = np.asarray(keys.fill_null(0))
        return np.searchsorted(np.array(bounds, dtype=np.int64), values, side="right")
    found: Int64Array = np.zeros(len(keys), dtype=np.int64)
    for bound in bounds:
        found += np.asarray(pc.greater_equal(keys, _scalar(bound, keys.type)).fill_null(False))
    return found


def within(keys: pa.ChunkedArray, cell: KeyRange) -> pa.ChunkedArray | None:
    """Returns which keys are in the range; None if it has no bound."""
    masks = []
    keys = _in_numbers(keys)
    if cell.low is not None:
        masks.append(pc.greater_equal(keys, _scalar(cell.low, keys.type)))
    if cell.high is not None:
        masks.append(pc.less(keys, _scalar(cell.high, keys.type)))
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else pc.and_(*masks)


def range_of(keys: pa.ChunkedArray) -> tuple[Bound | None, Bound | None]:
    """Returns the smallest and the largest value; None if they cannot be kept exactly."""
    if not len(keys) or not has_ranges(keys.type) or keys.null_count:
        return None, None
    found = pc.min_max(_in_numbers(keys))
    low, high = (bound_of(found[name].as_py(), keys.type) for name in ("min", "max"))
    if isinstance(low, str) and isinstance(high, str):
        return (None, None) if max(len(low), len(high)) > TEXT_LETTERS_MAX else (low, high)
    return low, high


def bounds_in(column: Any) -> list[Bound | None]:
    """Returns the values as bounds."""
    return [
        None if each is None else bound_of(each, column.type)
        for each in _in_numbers(column).to_pylist()
    ]


def bound_of(value: int | str | Decimal, kind: pa.DataType) -> Bound:
    """Returns the bound of `value`, a Python value from Arrow, as a number if its type has one."""
    return int(value.scaleb(kind.scale, EXACT)) if isinstance(value, Decimal) else value


def decimal_of(bound: int, kind: pa.DataType) -> Decimal:
    return Decimal(bound).scaleb(-kind.scale, EXACT)


def _counted_type(kind: pa.DataType) -> pa.DataType:
    """Returns the integer type in which values of this type are counted, if there is one."""
    is_moment = pa.types.is_date32(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return pa.int64() if is_moment or pa.types.is_integer(kind) else kind


def _in_numbers(keys: Any) -> Any:
    """Returns the column in the same order, as 64-bit integers if possible."""
    if pa.types.is_date32(keys.type) or pa.types.is_time32(keys.type):
        keys = keys.cast(pa.int32())
    return keys.cast(_counted_type(keys.type))


def _scalar(bound: Bound, kind: pa.DataType) -> pa.Scalar:
    is_decimal = pa.types.is_decimal(kind) and isinstance(bound, int)
    return pa.scalar(decimal_of(bound, kind) if is_decimal else bound, kind)  # type: ignore[arg-type]


def _order(value: Any) -> Any:
    """Text is ordered by its bytes, as in all engines."""
    return value.encode() if isinstance(value, str) else value
