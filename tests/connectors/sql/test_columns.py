"""Values that a driver hands over become those of their column's type, or are refused."""

from typing import Any

import pyarrow as pa
import pytest

from connectors.sql.columns import column_of
from core_log.errors import SourceRejected


@pytest.mark.parametrize("values", [[True, None, False], [1, None, 0], ["1", None, "0"]])
def test_every_way_to_say_true_and_false(values: list[Any]) -> None:
    column = column_of(values, pa.bool_(), name="done", table="orders")

    assert column.to_pylist() == [True, None, False]


@pytest.mark.parametrize("values", [[1, 2], ["0", "-1"], [True, "maybe"]])
def test_a_number_that_is_neither_true_nor_false_is_not_taken_for_one(values: list[Any]) -> None:
    with pytest.raises(SourceRejected, match="none of its type"):
        column_of(values, pa.bool_(), name="done", table="orders")


def test_no_values_are_no_column_of_another_type() -> None:
    assert column_of([], pa.bool_(), name="done", table="orders").type == pa.bool_()
