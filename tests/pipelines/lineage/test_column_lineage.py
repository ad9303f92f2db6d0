"""Each column of a target comes from the columns of the log that its rules name."""

import pyarrow as pa

from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.file.spec import RouteRule, TransformRule
from headwater.pipelines.lineage.column_lineage import ColumnOrigin, TableLineage, table_lineage
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.expressions import Expressions

ORDERS = TableSchema(
    TableId("public", "orders"),
    (
        Column("id", pa.int64()),
        Column("total", pa.decimal128(10, 2)),
        Column("status", pa.string()),
        Column("email", pa.string(), mask="hash"),
    ),
    ("id",),
)


def lineage_of(*rules: dict[str, object], route: dict[str, object] | None = None) -> TableLineage:
    given = [TransformRule.model_validate({"table": "public.orders", **rule}) for rule in rules]
    routes = [RouteRule.model_validate(route)] if route else []
    target = RowTransforms(given, routes).schema(ORDERS)
    expressions = Expressions()

    def used(text: str, known: object) -> list[str]:
        return list(expressions.check(text).names)

    found = table_lineage(
        ORDERS, target, given, used, constants=routes[0].add_key if routes else ()
    )
    assert {*found.columns} | {*(routes[0].add_key if routes else ())} == {*target.names}
    return found


def same(name: str) -> tuple[ColumnOrigin, ...]:
    return (ColumnOrigin(name),)


def made(name: str, how: str, *, is_masked: bool = False) -> ColumnOrigin:
    return ColumnOrigin(name, "TRANSFORMATION", how, is_masked)


def test_columns_without_rules_are_their_own_and_masks_are_named() -> None:
    found = lineage_of()

    assert found.columns == {
        "id": same("id"),
        "total": same("total"),
        "status": same("status"),
        "email": (made("email", "mask: hash", is_masked=True),),
    }
    assert found.filters == ()


def test_added_renamed_and_cast_columns_come_from_those_of_their_rules() -> None:
    found = lineage_of(
        {"add": {"gross": "total * 1.2", "label": "status || id"}, "rename": {"status": "state"}},
        {"cast": {"gross": "decimal(20,4)"}, "filter": "state <> 'draft'"},
    )

    assert found.columns["state"] == same("status")
    assert found.columns["gross"] == (made("total", "cast to decimal(20,4)"),)
    assert {*found.columns["label"]} == {
        made("status", "status || id"),
        made("id", "status || id"),
    }
    assert found.filters == (ColumnOrigin("status", "FILTER", "filter: state <> 'draft'"),)


def test_a_column_that_replaces_one_of_its_name_comes_from_the_former() -> None:
    found = lineage_of({"add": {"status": "upper(status)"}})

    assert found.columns["status"] == (made("status", "upper(status)"),)


def test_a_masked_column_stays_masked_where_others_are_made_of_it() -> None:
    found = lineage_of({"add": {"domain": "email"}})

    assert found.columns["domain"] == (made("email", "email", is_masked=True),)


def test_a_python_function_may_have_used_every_column() -> None:
    found = lineage_of({"python": "tests.pipelines.lineage.functions:with_note"})

    assert {each.column for each in found.columns["note"]} == {"id", "total", "status", "email"}
    assert {each.column for each in found.columns["id"]} == {"id", "total", "status", "email"}


def test_columns_that_a_route_adds_have_no_origin() -> None:
    found = lineage_of(route={"from": "public.*", "to": "all.$1", "add_key": {"tenant": "$1"}})

    assert "tenant" not in found.columns
    assert found.columns["id"] == same("id")
