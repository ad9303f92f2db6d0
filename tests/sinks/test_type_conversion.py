"""A value put into another type is the same value, or is named as one that would not be."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.sinks.spark.column_types import put
from headwater.sinks.type_conversion import CastFunction, cast, find_changed

NAN = float("nan")
MOMENT = pa.timestamp("us", "UTC")
NOON, MIDNIGHT = datetime(2026, 1, 2, 12, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("by", [cast, put])
@pytest.mark.parametrize(
    ("kind", "into", "same", "others"),
    [
        (pa.decimal128(12, 4), pa.decimal128(10, 2), [Decimal("1.2500")], [Decimal("1.2399")]),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), [Decimal("1.25")], [Decimal("1234567890.25")]),
        (pa.decimal128(20, 4), pa.float64(), [Decimal("1.1")], [Decimal("1234567890123456.7891")]),
        (pa.float64(), pa.float32(), [0.5, NAN, float("inf")], [0.1, 1e300]),
        (pa.float64(), pa.decimal128(10, 2), [1.1, -7.0], [1.125, 1e20, NAN]),
        (pa.float64(), pa.int32(), [2.0], [2.5, 2.0**31]),
        (pa.int64(), pa.int32(), [7], [2**31]),
        (pa.int64(), pa.float64(), [2**53], [2**53 + 1]),
        (pa.int64(), pa.decimal128(10, 2), [5], [10**8]),
        (pa.uint64(), pa.decimal128(10, 0), [5], [2**64 - 1]),
        (pa.int32(), pa.bool_(), [0, 1], [5]),
        (pa.int32(), pa.date32(), [], [20_000]),
        (MOMENT, pa.date32(), [MIDNIGHT], [NOON]),
        (MOMENT, pa.time64("us"), [], [NOON]),
        (MOMENT, pa.timestamp("s", "UTC"), [NOON], [datetime(2026, 1, 1, 0, 0, 0, 5, UTC)]),
        (pa.date32(), MOMENT, [date(2026, 1, 2)], []),
        (pa.date32(), pa.float64(), [], [date(2026, 1, 2)]),
        (pa.time64("us"), pa.time32("s"), [time(1, 2, 3)], [time(1, 2, 3, 4)]),
        (pa.string(), pa.int32(), ["12"], ["007", "x", ""]),
        (pa.string(), pa.bool_(), ["true"], ["t", "1"]),
        (pa.bool_(), pa.date32(), [], [True]),
        (pa.decimal128(20, 4), pa.string(), [Decimal("1.2399")], []),
        (pa.dictionary(pa.int8(), pa.string()), pa.int32(), ["12"], ["007"]),
    ],
    ids=str,
)
def test_values_that_would_be_others_are_named(
    kind: pa.DataType, into: pa.DataType, same: list[Any], others: list[Any], by: CastFunction
) -> None:
    column = pa.array([*same, None, *others, *same, None], kind)

    found = find_changed(column, into, by=by)

    assert found == list(range(len(same) + 1, len(same) + 1 + len(others)))


def test_parts_of_a_structure_are_not_left_out() -> None:
    narrow = pa.struct([("a", pa.int32())])
    wide = pa.struct([("a", pa.int64()), ("b", pa.string())])
    column = pa.array([{"a": 1}, {"a": 1, "b": "x"}, {"a": 2**31}, None], wide)

    assert find_changed(column, narrow, by=put) == [1, 2]


def test_an_exact_number_becomes_the_nearest_float() -> None:
    texts = [f"{number / 100:.2f}" for number in range(5_000)]

    found = cast(pa.array(map(Decimal, texts), pa.decimal128(12, 2)), pa.float64())

    assert found.to_pylist() == [float(text) for text in texts]
