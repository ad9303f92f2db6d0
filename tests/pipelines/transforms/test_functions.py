"""A function of the user's own project changes rows as it likes, and can hurt nothing but them."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, RecordsRejected, TransformFailed
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.transforms.after_log import RowTransforms
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    UPDATE,
    changes_of,
    only,
    schema_of,
    told,
)

ORDERS = schema_of({"id": pa.int64(), "status": pa.string()})

PROJECT = """
import sys

import pyarrow as pa
import pyarrow.compute as pc


def shout(orders: pa.Table) -> pa.Table:
    return orders.append_column("loud", pc.utf8_upper(orders["status"]))


def clean(rows):
    for row in rows:
        row["status"] = row["status"].strip()
    return rows


def typed(orders: list[dict]) -> list[dict]:
    return [row | {"status": "seen"} for row in orders]


def leaves(orders):
    sys.exit("enough")


def shorter(orders):
    return orders.slice(1)


def other_key(orders):
    return orders.set_column(0, "id", pc.add(orders["id"], 1))


def other_kind(orders):
    return orders.to_pylist()


def new_column(rows):
    return [row | {"extra": 1} for row in rows]


def wrong_type(rows):
    return [row | {"status": 5} for row in rows]


LIMIT = 3
"""


@pytest.fixture
def after_log(tmp_path: Path) -> Callable[[str], RowTransforms]:
    name = f"project_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROJECT)

    def make(function: str) -> RowTransforms:
        rule = TransformRule(table=("public.orders",), python=f"{name}:{function}")
        return RowTransforms([rule], [], directory=tmp_path)

    return make


def test_a_table_goes_in_and_a_table_with_more_columns_comes_out(
    after_log: Callable[[str], RowTransforms],
) -> None:
    transform = after_log("shout")
    given = changes_of(
        ORDERS, (INSERT, {"id": 1, "status": "a"}), (DELETE, {"id": 2}), (UPDATE, {"id": 3})
    )

    found = only(transform.apply(given))

    assert told(found) == [
        (INSERT, {"id": 1, "status": "a", "loud": "A"}),
        (DELETE, {"id": 2, "status": None, "loud": None}),
        (UPDATE, {"id": 3, "status": None, "loud": None}),
    ]
    assert found.schema == transform.schema(ORDERS)


@pytest.mark.parametrize(("function", "status"), [("clean", "a"), ("typed", "seen")])
def test_rows_go_in_where_the_function_asks_for_them(
    after_log: Callable[[str], RowTransforms], function: str, status: str
) -> None:
    given = changes_of(ORDERS, (INSERT, {"id": 1, "status": " a "}))

    found = only(after_log(function).apply(given))

    assert told(found) == [(INSERT, {"id": 1, "status": status})]


def test_rows_on_which_it_raises_are_named_and_their_values_are_not(
    after_log: Callable[[str], RowTransforms],
) -> None:
    rows = [(INSERT, {"id": n, "status": "secret"}) for n in range(50)]
    rows[9] = (INSERT, {"id": 9, "status": None})
    given = changes_of(ORDERS, *rows, first_offset=100)

    with pytest.raises(RecordsRejected) as caught:
        after_log("clean").apply(given)

    assert list(caught.value.reasons) == [109]
    assert caught.value.reasons[109].endswith(":clean: AttributeError")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("other_key", "changes the key"),
        ("other_kind", "does not return the form of its input"),
        ("shorter", "another number of rows"),
    ],
)
def test_a_return_value_that_is_not_allowed_fails_its_table(
    after_log: Callable[[str], RowTransforms], function: str, problem: str
) -> None:
    with pytest.raises(TransformFailed, match=problem) as caught:
        after_log(function).apply(changes_of(ORDERS, (INSERT, {"id": 1})))

    assert caught.value.facts["table"] == "public.orders"


def test_rows_cannot_make_columns_and_the_way_to_make_them_is_said(
    after_log: Callable[[str], RowTransforms],
) -> None:
    with pytest.raises(TransformFailed, match="NULL::VARCHAR"):
        after_log("new_column").apply(changes_of(ORDERS, (INSERT, {"id": 1})))


def test_a_value_of_another_type_rejects_its_row(after_log: Callable[[str], RowTransforms]) -> None:
    given = changes_of(ORDERS, (INSERT, {"id": 1}), first_offset=3)

    with pytest.raises(RecordsRejected) as caught:
        after_log("wrong_type").apply(given)

    assert list(caught.value.reasons) == [3]


def test_a_function_that_exits_ends_nothing_but_its_table(
    after_log: Callable[[str], RowTransforms],
) -> None:
    with pytest.raises(TransformFailed, match="SystemExit"):
        after_log("leaves").schema(ORDERS)


@pytest.mark.parametrize("name", ["nowhere:f", "json:nothing", "json:__name__"])
def test_a_function_that_is_not_there_is_a_mistake_in_the_file(name: str) -> None:
    with pytest.raises(ConfigError, match="python transform"):
        RowTransforms([TransformRule(table=("*",), python=name)], [])
