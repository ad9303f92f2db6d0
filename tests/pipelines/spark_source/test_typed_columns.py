"""Columns hold what the log holds, whatever the table looked like when it was written."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.spark_source.typed import BATCH_ROWS_MAX, TypedColumns
from tests.slices import Change, changes_of, schema_of

PART = TopicPartition("shop.public.orders", 3)
OLD = schema_of(id=pa.int32(), amount=pa.int32(), gone=pa.string())
NEW = schema_of(id=pa.int64(), amount=pa.decimal128(12, 2), added=pa.date32())


def placed(changes: TableChanges) -> TableChanges:
    offsets = pa.array(range(len(changes)), pa.int64())
    return replace(changes, log_partition=PART, log_offsets=offsets)


def rows(columns: TypedColumns, *batches: TableChanges) -> list[dict[str, Any]]:
    return [row for each in batches for batch in columns.batches(each) for row in batch.to_pylist()]


def test_every_column_that_ever_was_has_a_place() -> None:
    columns = TypedColumns.of([OLD, NEW])

    assert [(each.name, str(each.type)) for each in columns.row] == [
        ("id", "int64"),
        ("amount", "decimal128(12, 2)"),
        ("added", "date32[day]"),
        ("gone", "string"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "common"),
    [
        (pa.int16(), pa.int64(), pa.int64()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float64(), pa.string()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.decimal128(20, 4), pa.float64(), pa.string()),
        (pa.float32(), pa.decimal128(5, 2), pa.string()),
        (pa.uint64(), pa.float64(), pa.string()),
        (pa.uint64(), pa.int64(), pa.decimal128(20, 0)),
        (pa.decimal128(38, 2), pa.decimal128(38, 10), pa.string()),
        (pa.binary(), pa.string(), pa.binary()),
        (pa.string(), pa.int64(), pa.string()),
        (pa.bool_(), pa.int64(), pa.string()),
        (pa.time64("us"), pa.string(), pa.string()),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (
            pa.map_(pa.string(), pa.decimal128(20, 4)),
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.string()),
        ),
        (
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.decimal128(20, 4)))]),
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]),
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))]),
        ),
    ],
    ids=str,
)
def test_a_type_that_changed_becomes_one_that_holds_both(
    old: pa.DataType, new: pa.DataType, common: pa.DataType
) -> None:
    schemas = [schema_of(id=pa.int64(), v=old), schema_of(id=pa.int64(), v=new)]

    assert TypedColumns.of(schemas).row.field("v").type == common


def test_changes_under_every_schema_are_read() -> None:
    first: Change = ("c", {"id": 1, "amount": 5, "gone": "x"})
    second: Change = ("u", {"id": 1, "amount": Decimal("7.25"), "added": None})

    read = rows(
        TypedColumns.of([OLD, NEW]), placed(changes_of(OLD, first)), placed(changes_of(NEW, second))
    )

    assert [row["after"] for row in read] == [
        {"id": 1, "amount": Decimal("5.00"), "added": None, "gone": "x"},
        {"id": 1, "amount": Decimal("7.25"), "added": None, "gone": None},
    ]
    assert {(row["topic"], row["partition"]) for row in read} == {PART}


def test_digits_of_a_number_are_kept_when_its_column_becomes_a_float() -> None:
    exact = schema_of(id=pa.int64(), total=pa.decimal128(20, 4))
    rough = schema_of(id=pa.int64(), total=pa.float64())
    old: Change = ("c", {"id": 1, "total": Decimal("1234567890123456.7891")})
    new: Change = ("u", {"id": 1, "total": 0.1})

    read = rows(
        TypedColumns.of([exact, rough]),
        placed(changes_of(exact, old)),
        placed(changes_of(rough, new)),
    )

    assert [row["after"]["total"] for row in read] == ["1234567890123456.7891", "0.1"]


def test_rows_before_and_after_are_there_as_the_operation_has_them() -> None:
    letters = "rcud"
    changes = changes_of(NEW, *[(letter, {"id": place}) for place, letter in enumerate(letters)])
    images = changes_of(NEW, *[("c", {"id": 70 + place}) for place in range(4)]).rows
    before = images.to_struct_array().take(pa.array([None, None, 2, None], pa.int64()))

    read = rows(TypedColumns.of([NEW]), placed(replace(changes, before=before)))

    assert [row["op"] for row in read] == list(letters)
    assert [row["after"] and row["after"]["id"] for row in read] == [0, 1, 2, None]
    assert [row["before"] and row["before"]["id"] for row in read] == [None, None, 72, 3]


def test_a_truncate_has_no_row() -> None:
    [row] = rows(TypedColumns.of([NEW]), placed(changes_of(NEW, ("t", {}))))

    assert (row["op"], row["before"], row["after"]) == ("t", None, None)


@pytest.mark.slow
def test_many_changes_come_in_batches() -> None:
    many = [("c", {"id": number}) for number in range(BATCH_ROWS_MAX + 1)]

    batches = list(TypedColumns.of([NEW]).batches(placed(changes_of(NEW, *many))))

    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, 1]


@pytest.mark.parametrize(
    ("planned", "type_", "fits", "value"),
    [
        (pa.decimal128(10, 2), pa.float64(), 1.25, 1.239),
        (pa.float32(), pa.float64(), 0.5, 0.1),
        (pa.float64(), pa.decimal128(38, 0), Decimal(5), Decimal("12345678901234567890123")),
        (pa.bool_(), pa.int32(), 1, 2),
    ],
)
def test_a_value_that_the_planned_type_would_round_is_refused(
    planned: pa.DataType, type_: pa.DataType, fits: object, value: object
) -> None:
    columns = TypedColumns(pa.struct([("amount", planned)]))
    schema = schema_of(id=pa.int64(), amount=type_)

    [row] = rows(columns, placed(changes_of(schema, ("c", {"id": 1, "amount": fits}))))

    assert row["after"] == {"amount": fits}
    with pytest.raises(SchemaRefused, match="start the query again"):
        rows(columns, placed(changes_of(schema, ("c", {"id": 1, "amount": value}))))


def test_a_value_beyond_the_planned_type_is_refused() -> None:
    planned = TypedColumns(pa.struct([("id", pa.int32())]))
    changes = placed(changes_of(NEW, ("c", {"id": 1 << 40})))

    with pytest.raises(SchemaRefused, match="start the query again"):
        rows(planned, changes)
