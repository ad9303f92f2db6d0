"""Rows that are picked by their places, whether they are copied or not."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.sinks.spark.merge import RUN_ROWS_MIN, pick

COUNT = 5 * RUN_ROWS_MIN
ROWS = pa.concat_tables(
    pa.table({"id": np.arange(start, start + 700), "name": [f"row {start}"] * 700})
    for start in range(0, COUNT, 700)
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.integers(0, COUNT - 1))
    return start, draw(st.integers(start, COUNT))


@given(st.lists(runs(), max_size=6))
def test_rows_picked_by_runs_equal_rows_that_are_taken(found: list[tuple[int, int]]) -> None:
    places = np.concatenate([np.arange(0), *(np.arange(start, end) for start, end in found)])

    picked = pick(ROWS, places)

    assert picked.equals(ROWS.take(pa.array(places, pa.int64())))


def test_long_runs_are_not_copied() -> None:
    rows = pa.table({"id": np.arange(COUNT)})
    places = np.concatenate([np.arange(COUNT // 2, COUNT), np.arange(COUNT // 2)])

    picked = pick(rows, places)

    [whole] = rows.column("id").chunks
    first = picked.column("id").chunk(0)
    assert first.buffers()[1].address == whole.buffers()[1].address
