"""Rows of the log whose values today's types do not hold differ from all others, and only they."""

from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from headwater.pipelines.time_travel.verify.log_state import ComparedColumns
from headwater.sinks import type_conversion
from headwater.sinks.type_conversion import find_unfit
from tests.slices import schema_of

ROWS = 20_000
MANY = 100
"""Casts. One for each value would hold up everything that shares the threads."""
NUMERIC = pa.decimal128(12, 2)
COLUMNS: dict[str, tuple[pa.DataType, list[Any], pa.DataType]] = {
    "fractions": (NUMERIC, [Decimal("1.00"), Decimal("1.50"), None], pa.int64()),
    "large numbers": (pa.int64(), [1, 1 << 40, -(1 << 40), None], pa.int32()),
    "large fractions": (NUMERIC, [Decimal("1.00"), Decimal("12345678.00")], pa.decimal128(6, 2)),
    "finer fractions": (NUMERIC, [Decimal("1.10"), Decimal("1.11")], pa.decimal128(12, 1)),
    "floats": (pa.float64(), [1.0, 1.5, float("nan"), 1e300, None], pa.int64()),
    "exact floats": (pa.int64(), [1, 1 << 60, (1 << 53) + 1, None], pa.float64()),
    "texts": (pa.string(), ["1", "x", "", "1.5", None], pa.int64()),
    "dates": (pa.string(), ["2024-01-01", "x", None], pa.date32()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_just_the_values_are_found_that_a_cast_refuses(name: str) -> None:
    kind, values, now = COLUMNS[name]
    column = pa.array(values * 3, kind)

    found = find_unfit(column, now)

    alone = [
        not type_conversion._is_castable(column.slice(at, 1), now) for at in range(len(column))
    ]
    assert found.tolist() == alone
    assert any(alone) and not all(alone)


@pytest.mark.parametrize(
    ("values", "now"),
    [
        (pa.array([Decimal(number) / 100 for number in range(ROWS)], NUMERIC), pa.int64()),
        (pa.array([Decimal(number) for number in range(ROWS)], NUMERIC), pa.decimal128(5, 2)),
        (pa.array([number / 4 for number in range(ROWS)]), pa.int32()),
        (pa.array([number << 20 for number in range(ROWS)]), pa.int32()),
        (pa.array(range(ROWS)), pa.decimal128(6, 2)),
    ],
    ids=["fractions", "decimals", "floats", "integers", "integers to decimals"],
)
def test_many_numbers_cost_few_casts(values: pa.Array, now: pa.DataType) -> None:
    cast = type_conversion._is_castable
    with patch.object(type_conversion, "_is_castable", side_effect=cast) as casts:
        found = find_unfit(values, now)

    assert casts.call_count < MANY
    sample = range(0, ROWS, 37)
    assert [bool(found[at]) for at in sample] == [
        not cast(values.slice(at, 1), now) for at in sample
    ]


def test_rows_that_do_not_fit_differ_from_all_others() -> None:
    schema = schema_of(id=pa.int64(), total=pa.int64())
    shape, ids = ComparedColumns(schema, schema.names), pa.array(range(ROWS))
    totals = pa.array([Decimal(number) / 100 for number in range(ROWS)], NUMERIC)
    rows = pa.RecordBatch.from_arrays([ids, totals], names=schema.names)
    now = pa.RecordBatch.from_arrays(
        [ids, pa.array([number // 100 for number in range(ROWS)])], schema=schema.arrow
    )

    keys, found = shape.digest_log_rows(rows)

    wanted_keys, wanted = shape.digests(now)
    assert np.array_equal(keys, wanted_keys)
    assert np.array_equal(found == wanted, np.arange(ROWS) % 100 == 0)


def test_whole_numbers_that_fit_a_column_of_decimals_equal_those_there() -> None:
    """Arrow's own cast refuses all of a type with more digits, and nulls too."""
    schema = schema_of(id=pa.int64(), total=pa.decimal128(12, 2), note=pa.string())
    shape, ids = ComparedColumns(schema, schema.names), pa.array(range(4))
    values, notes = [1, None, 10**10, -(10**10) + 1], pa.array(["a", "b", "c", "d"])
    totals = [Decimal("1.00"), None, None, Decimal("-9999999999.00")]
    now = pa.RecordBatch.from_arrays(
        [ids, pa.array(totals, schema.arrow.field("total").type), notes], schema=schema.arrow
    )
    wanted_keys, wanted = shape.digests(now)

    for kind in (pa.int64(), pa.decimal128(38, 0)):
        rows = pa.RecordBatch.from_arrays([ids, pa.array(values, kind), notes], names=schema.names)
        keys, found = shape.digest_log_rows(rows)
        assert np.array_equal(keys, wanted_keys)
        assert (found == wanted).tolist() == [True, True, False, True]


def test_rows_of_which_none_fits_differ_from_all_others() -> None:
    """No number is a list, and Arrow refuses this cast of no rows at all."""
    schema = schema_of(id=pa.int64(), total=pa.list_(pa.int32()))
    shape, ids = ComparedColumns(schema, schema.names), pa.array(range(3))
    totals = pa.array([Decimal(1), Decimal(2), None], NUMERIC)
    rows = pa.RecordBatch.from_arrays([ids, totals], names=schema.names)
    now = pa.RecordBatch.from_arrays([ids, pa.nulls(3, pa.list_(pa.int32()))], schema=schema.arrow)

    keys, found = shape.digest_log_rows(rows)

    wanted_keys, wanted = shape.digests(now)
    assert np.array_equal(keys, wanted_keys)
    assert (found == wanted).tolist() == [False, False, True]
