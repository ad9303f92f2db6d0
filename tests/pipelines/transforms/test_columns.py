"""Added, renamed and cast columns hold what the file says, and what does not fit is an error."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, RecordsRejected
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.transforms.after_log import RowTransforms
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    Row,
    changes_of,
    only,
    schema_of,
    told,
)

ORDERS = schema_of()
NOON = datetime(2026, 1, 31, 12)
PAID: Row = {"id": 1, "status": "paid", "total": Decimal("12.50"), "created_at": NOON}


def after_log(**rule: object) -> RowTransforms:
    return RowTransforms([TransformRule.model_validate({"table": "public.orders"} | rule)], [])


def test_an_added_column_is_computed_from_the_row() -> None:
    transform = after_log(
        add={"order_day": "date(created_at)", "net": "total / 2", "label": "status || '-' || id"}
    )

    found = only(transform.apply(changes_of(ORDERS, (INSERT, PAID))))

    added = {"order_day": date(2026, 1, 31), "net": 6.25, "label": "paid-1"}
    assert told(found) == [(INSERT, PAID | added)]
    assert found.schema == transform.schema(ORDERS)
    assert [str(found.schema.column(name).type) for name in added] == [
        "date32[day]", "double", "string",
    ]  # fmt: skip


def test_a_column_of_the_same_name_is_replaced_in_its_place() -> None:
    found = only(
        after_log(add={"status": "upper(status)"}).apply(changes_of(ORDERS, (INSERT, PAID)))
    )

    assert found.schema.names == ORDERS.names
    assert told(found) == [(INSERT, PAID | {"status": "PAID"})]


def test_a_value_that_cannot_be_computed_of_a_delete_is_null() -> None:
    transform = after_log(add={"number": "CAST(status AS INTEGER)"})
    given = changes_of(
        ORDERS, (INSERT, {"id": 1, "status": "7"}), (DELETE, {"id": 2, "status": "x"})
    )

    found = only(transform.apply(given))

    assert found.rows.column("number").to_pylist() == [7, None]
    assert found.operations.to_pylist() == [INSERT, DELETE]


def test_single_rows_that_cannot_be_computed_are_named_and_the_others_go_on() -> None:
    transform = after_log(add={"share": "100 // (id - 3)", "doubled": "id * 2"})
    given = changes_of(ORDERS, *[(INSERT, {"id": n}) for n in range(6)], first_offset=40)

    with pytest.raises(RecordsRejected) as caught:
        transform.apply(given)
    others = only(transform.apply(given.filter(pa.array([n != 3 for n in range(6)]))))

    assert caught.value.reasons == {43: "add share, doubled fails: invalid input error"}
    assert others.rows.column("share").to_pylist() == [-33, -50, -100, 100, 50]


def test_an_overflow_is_an_error_and_no_wrapped_number() -> None:
    given = changes_of(ORDERS, (UPDATE, {"id": 2**62}), (UPDATE, {"id": 2}), first_offset=0)

    with pytest.raises(RecordsRejected) as caught:
        after_log(add={"much": "id * 4"}).apply(given)

    assert list(caught.value.reasons) == [0]


def test_renamed_columns_keep_their_values_their_key_and_the_rows_before_them() -> None:
    given = changes_of(ORDERS, (UPDATE, PAID), (DELETE, {"id": 2}), before=[PAID, None])

    found = only(after_log(rename={"id": "order_id", "total": "amount"}).apply(given))

    renamed = {"order_id": 1, "status": "paid", "amount": Decimal("12.50"), "created_at": NOON}
    assert told(found)[0] == (UPDATE, renamed)
    assert found.schema.key == ("order_id",)
    assert found.before is not None and found.before.to_pylist() == [renamed, None]


@pytest.mark.parametrize(
    ("column", "value", "kind", "cast"),
    [
        ("status", "17", "int32", 17),
        ("status", "2026-01-31", "date", date(2026, 1, 31)),
        ("status", "1.50", "decimal(10,2)", Decimal("1.50")),
        ("total", Decimal("12.50"), "string", "12.50"),
        ("total", Decimal("12.50"), "float64", 12.5),
        ("total", Decimal("70368744.17"), "float64", 70368744.17),
        ("created_at", NOON, "date", date(2026, 1, 31)),
        ("id", 7, "string", "7"),
    ],
)
def test_a_cast_gives_the_same_value_in_another_type(
    column: str, value: object, kind: str, cast: object
) -> None:
    given = changes_of(ORDERS, (INSERT, {"id": 1, column: value}))

    found = only(after_log(cast={column: kind}).apply(given))

    assert found.rows.column(column).to_pylist() == [cast]


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("status", "seven", "int32"),
        ("status", "300", "int8"),
        ("total", Decimal("12.50"), "int64"),
        ("total", Decimal("12345.00"), "decimal(4,2)"),
        ("status", "2026-02-31", "date"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_never_a_null_or_a_rounded_one(
    column: str, value: object, kind: str
) -> None:
    given = changes_of(
        ORDERS, (INSERT, {"id": 1}), (INSERT, {"id": 2, column: value}), first_offset=10
    )

    with pytest.raises(RecordsRejected) as caught:
        after_log(cast={column: kind}).apply(given)

    assert caught.value.reasons == {11: f"the value of {column} is no {kind}"}
    assert str(value) not in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "fits", "value", "kind"),
    [
        (pa.float64(), 1.23, 1.239, "decimal(10,2)"),
        (pa.float64(), 0.1, 1e300, "decimal(38,20)"),
        (pa.float64(), 0.1, 16777217.0, "float32"),
        (pa.float64(), float("inf"), 1e300, "float32"),
        (pa.decimal128(38, 0), Decimal(7), Decimal("12345678901234567890123"), "float64"),
        (pa.decimal128(10, 2), Decimal("0.10"), Decimal("16777217.00"), "float32"),
        (pa.string(), "Infinity", "1e400", "float64"),
        (pa.int64(), 1, 2, "bool"),
        (pa.float64(), 0.0, 0.5, "bool"),
        (pa.list_(pa.float64()), [0.5, None], [0.5, 1.239], "list<decimal(10,2)>"),
        (pa.struct([("a", pa.float64())]), {"a": 0.5}, {"a": 1e300}, "struct<a:float32>"),
    ],
)
def test_a_number_that_another_type_would_round_is_an_error(
    type_: pa.DataType, fits: object, value: object, kind: str
) -> None:
    schema = schema_of({"id": pa.int64(), "v": type_})
    rows: list[Row] = [{"id": 1}, {"id": 2, "v": fits}, {"id": 3, "v": value}]
    given = changes_of(schema, *[(INSERT, row) for row in rows], first_offset=10)

    only(after_log(cast={"v": kind}).apply(given.slice(0, 2)))
    with pytest.raises(RecordsRejected) as caught:
        after_log(cast={"v": kind}).apply(given)

    assert caught.value.reasons.keys() == {12}


def test_a_decimal_becomes_the_float_of_its_text() -> None:
    schema = schema_of({"id": pa.int64(), "v": pa.decimal128(15, 6)})
    values = [Decimal(number * 7_919_777).scaleb(-6) for number in range(1_000)]
    given = changes_of(schema, *[(INSERT, {"id": 1, "v": value}) for value in values])

    found = only(after_log(cast={"v": "float64"}).apply(given))

    assert found.rows.column("v").to_pylist() == [float(value) for value in values]


def test_a_delete_gets_through_a_cast_that_its_row_does_not_fit() -> None:
    given = changes_of(
        ORDERS, (DELETE, {"id": 1, "status": "x"}), (INSERT, {"id": 2, "status": "3"})
    )

    found = only(after_log(cast={"status": "int64"}).apply(given))

    assert found.rows.column("status").to_pylist() == [None, 3]


@pytest.mark.slow
def test_a_truncate_has_the_columns_that_the_rows_have() -> None:
    transform = after_log(add={"day": "date(created_at)"}, rename={"id": "order_id"})

    found = only(transform.apply(changes_of(ORDERS, (TRUNCATE, {}))))

    assert found.is_truncate and found.truncated_where == {}
    assert found.schema == transform.schema(ORDERS)
    assert found.rows.schema.equals(found.schema.arrow)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"add": {"id": "id + 1"}}, "a key column cannot be replaced"),
        ({"add": {"x": "nowhere"}}, "the table does not have this column"),
        ({"add": {"x": "INTERVAL 1 DAY"}}, "a type that no target supports"),
        ({"add": {"x": "gen_random_uuid()"}}, "not permitted"),
        ({"rename": {"status": "total"}}, "two columns have the same name"),
        ({"rename": {"stauts": "state"}}, "did you mean status"),
        ({"cast": {"total": "number"}}, "the type does not exist"),
        ({"cast": {"id": "int32"}}, "could make two keys equal"),
        ({"cast": {"id": "float64"}}, "could make two keys equal"),
    ],
)
def test_a_rule_that_does_not_fit_its_table_is_refused(
    rule: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        after_log(**rule).schema(ORDERS)

    assert caught.value.facts["table"] == "public.orders", "so that it can be stopped alone"


def test_a_rule_for_many_tables_changes_columns_only_where_they_are() -> None:
    rule = TransformRule(table=("*",), rename={"nowhere": "x"}, cast={"nothing": "int8"})

    assert RowTransforms([rule], []).schema(ORDERS) == ORDERS
