"""The range of keys of every file, and the cells into which changes fall: what is rewritten as
one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]
Bound = int | str
"""A value of the key's first column, exactly as it was written."""

TEXT_LETTERS_MAX = 200
"""Longer keys have no range: they could not be told from one another by what readers keep."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table. Without a range it may hold any key."""

    path: str
    """From the table's root."""
    rows: int
    size: int
    low: Bound | None = None
    high: Bound | None = None
    """The smallest and the largest value of the key's first column."""
    partition: tuple[str | None, ...] = ()
    """Values of the columns by which the table is divided."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of keys, and the files that hold keys of it. Cells never overlap."""

    low: Bound | None
    """None: from the very first."""
    high: Bound | None
    """Up to here and without it; None: to the very last."""
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def has_ranges(kind: pa.DataType) -> bool:
    """Whether values are kept exactly enough to tell where one belongs."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def cells_of(files: Sequence[DataFile]) -> list[Cell]:
    """Files whose ranges overlap share a cell; between two cells, the gap belongs to the lower."""
    if not files or any(each.low is None or each.high is None for each in files):
        return [Cell(None, None, tuple(files))]
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
        Cell(low, high, tuple(group)) for low, high, group in zip(lows, highs, groups, strict=True)
    ]


def divided(cells: Sequence[Cell], sample: pa.Array, *, rows: int, rows_max: int) -> list[Cell]:
    """The same with those divided that would get too large, were `rows` changes to come that are
    like `sample`. Parts of a cell share its files: all of them are rewritten, or none."""
    found: list[Cell] = []
    places = assign(sample, cells)
    for number, cell in enumerate(cells):
        mine = sample.filter(pa.array(places == number))
        coming = rows * len(mine) // max(len(sample), 1)
        parts = -(-(cell.rows + coming) // rows_max)
        found += _parts(cell, mine, coming, parts) if parts > 1 else [cell]
    return found


def _parts(cell: Cell, sample: pa.Array, coming: int, parts: int) -> list[Cell]:
    """Cut where the changes and the files that are there have about as many rows on both sides."""
    weighted = [(value, coming / max(len(sample), 1)) for value in sample.to_pylist()]
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
    return [Cell(low, high, cell.files) for low, high in zip(lows, highs, strict=True)]


def assign(keys: pa.Array, cells: Sequence[Cell]) -> Places:
    """The number of the cell that each key falls into."""
    bounds = [cell.low for cell in cells[1:]]
    if not bounds:
        return np.zeros(len(keys), dtype=np.int64)
    if pa.types.is_integer(keys.type):
        values = np.asarray(keys.cast(pa.int64()).fill_null(0))
        return np.searchsorted(np.array(bounds, dtype=np.int64), values, side="right")
    found: Places = np.zeros(len(keys), dtype=np.int64)
    for bound in bounds:
        found += np.asarray(pc.greater_equal(keys, pa.scalar(bound, keys.type)).fill_null(False))
    return found


def within(keys: pa.ChunkedArray, cell: Cell) -> pa.ChunkedArray | None:
    """Which keys fall into the cell; None when there is no bound."""
    masks = []
    if cell.low is not None:
        masks.append(pc.greater_equal(keys, pa.scalar(cell.low, keys.type)))
    if cell.high is not None:
        masks.append(pc.less(keys, pa.scalar(cell.high, keys.type)))
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else pc.and_(*masks)


def range_of(keys: pa.ChunkedArray) -> tuple[Bound | None, Bound | None]:
    """The smallest and the largest; None where they cannot be kept exactly."""
    if not len(keys) or not has_ranges(keys.type) or keys.null_count:
        return None, None
    found = pc.min_max(keys)
    low, high = found["min"].as_py(), found["max"].as_py()
    if isinstance(low, str) and max(len(low), len(high)) > TEXT_LETTERS_MAX:
        return None, None
    return low, high


def _order(value: Any) -> Any:
    """Text is ordered by its bytes, as all engines do."""
    return value.encode() if isinstance(value, str) else value
