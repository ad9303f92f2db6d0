"""Values that a driver hands over become those of their column's type, or are refused."""

from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors.sql.columns import column_of
from headwater.core_log.foundation.errors import SourceRejected


@pytest.mark.parametrize("values", [[True, None, False], [1, None, 0], ["1", None, "0"]])
def test_every_way_to_say_true_and_false(values: list[Any]) -> None:
    column = column_of(values, pa.bool_(), name="done", table="orders")

    assert column.to_pylist() == [True, None, False]


@pytest.mark.parametrize("values", [[1, 2], ["0", "-1"], [True, "maybe"]])
def test_a_number_that_is_neither_true_nor_false_is_not_taken_for_one(values: list[Any]) -> None:
    with pytest.raises(SourceRejected, match="not of its type"):
        column_of(values, pa.bool_(), name="done", table="orders")


def test_no_values_are_no_column_of_another_type() -> None:
    assert column_of([], pa.bool_(), name="done", table="orders").type == pa.bool_()


@pytest.mark.parametrize(
    "values", [["24:00:00", "23:59:59.5", None], ["24:00:00.000000", "23:59:59.5"]]
)
def test_the_end_of_a_day_is_a_time(values: list[Any]) -> None:
    column = column_of(values, pa.time64("us"), name="closes", table="shops")

    assert column.view(pa.int64()).to_pylist()[:2] == [86_400_000_000, 86_399_500_000]


@pytest.mark.parametrize("text", ["24:00:00.5", "24:00:01", "25:00:00", "-01:00:00", "now"])
def test_a_text_beyond_the_end_of_a_day_is_no_time(text: str) -> None:
    with pytest.raises(SourceRejected, match="not of its type"):
        column_of([text], pa.time64("us"), name="closes", table="shops")
