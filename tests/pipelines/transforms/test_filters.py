"""A filtered table is what filtering the table would give, whatever happened to its rows before."""

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import ConfigError, RecordsRejected, TransformFailed
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.expressions import Expressions
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    READ,
    REREAD,
    TRUNCATE,
    UPDATE,
    Row,
    changes_of,
    mirror,
    only,
    schema_of,
    told,
)

ORDERS = schema_of()
NUMBERS = schema_of({"id": pa.int64(), "a": pa.int64(), "b": pa.int64()}, table="public.numbers")

Truth = bool | None
Condition = tuple[str, Callable[[Row], Truth]]


EXPRESSIONS = cache(Expressions)
"""One for all tests, made by the first."""


def filtered(text: str, table: str = "public.orders") -> RowTransforms:
    rule = TransformRule(table=(table,), filter=text)
    return RowTransforms([rule], [], expressions=EXPRESSIONS())


def test_a_row_read_again_that_leaves_the_filter_deletes_its_key() -> None:
    draft = {"id": 1, "status": "draft"}
    first = changes_of(ORDERS, (READ, draft), first_offset=5)
    again = changes_of(ORDERS, (REREAD, draft), first_offset=6)
    transforms = filtered("status <> 'draft'")

    assert [len(each) for each in transforms.apply(first)] in ([], [0])
    [(operation, row)] = told(only(transforms.apply(again)))
    assert (operation, row["id"]) == (DELETE, 1)


def test_an_update_that_leaves_the_filter_deletes_its_key() -> None:
    paid, draft = {"id": 1, "status": "paid"}, {"id": 1, "status": "draft"}
    given = changes_of(ORDERS, (UPDATE, paid), (UPDATE, draft), before=[None, paid], first_offset=5)

    found = only(filtered("status <> 'draft'").apply(given))

    nothing = {"status": None, "total": None, "created_at": None}
    assert told(found) == [
        (UPDATE, {"id": 1, "status": "paid", "total": None, "created_at": None}),
        (DELETE, {"id": 1} | nothing),
    ]
    assert found.log_offsets is not None and found.log_offsets.to_pylist() == [5, 6]


def test_new_rows_that_do_not_pass_are_left_out_and_unknown_counts_as_not_passing() -> None:
    given = changes_of(
        ORDERS,
        (INSERT, {"id": 1, "status": "draft"}),
        (READ, {"id": 2, "status": None}),
        (INSERT, {"id": 3, "status": "paid"}),
    )

    found = only(filtered("status <> 'draft'").apply(given))

    assert [(operation, row["id"]) for operation, row in told(found)] == [(INSERT, 3)]


def test_a_delete_always_passes_and_its_row_is_never_asked() -> None:
    given = changes_of(ORDERS, (DELETE, {"id": 1, "status": "x"}), (DELETE, {"id": 2}))

    found = only(filtered("CAST(status AS INTEGER) > 3").apply(given))

    assert [(operation, row["id"]) for operation, row in told(found)] == [(DELETE, 1), (DELETE, 2)]


def test_a_truncate_always_passes() -> None:
    given = changes_of(ORDERS, (TRUNCATE, {}))

    assert only(filtered("status = 'never'").apply(given)).is_truncate


def test_nothing_is_handed_on_when_nothing_passes() -> None:
    given = changes_of(ORDERS, (INSERT, {"id": 1, "status": "draft"}))

    assert filtered("status <> 'draft'").apply(given) == []


def test_rows_without_a_key_are_only_left_out() -> None:
    keyless = schema_of({"n": pa.int64()}, table="public.orders", key=())
    given = changes_of(keyless, (UPDATE, {"n": 1}), (INSERT, {"n": 5}))

    assert told(only(filtered("n > 3").apply(given))) == [(INSERT, {"n": 5})]


def test_single_rows_that_cannot_be_answered_are_named_by_their_offsets() -> None:
    rows = [(INSERT, {"id": n, "status": str(n)}) for n in range(100)]
    rows[7] = (INSERT, {"id": 7, "status": "seven"})
    rows[70] = (UPDATE, {"id": 70, "status": "seventy"})

    with pytest.raises(RecordsRejected) as caught:
        filtered("CAST(status AS INTEGER) > 3").apply(changes_of(ORDERS, *rows, first_offset=1000))

    assert sorted(caught.value.reasons) == [1007, 1070]
    assert caught.value.reasons[1007] == "filter fails: conversion error"
    assert "seven" not in str(caught.value)


def test_rows_that_have_no_offset_yet_fail_the_batch_in_words() -> None:
    given = changes_of(ORDERS, (INSERT, {"id": 1, "status": "x"}))

    with pytest.raises(TransformFailed, match="cannot be computed"):
        filtered("1 // length(replace(status, 'x', '')) = 1").apply(given)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("status", "the filter is not a condition"),
        ("stauts = 'x'", "did you mean status?"),
        ("status + 1 > CAST('a' AS DATE)", "does not fit the table"),
    ],
)
def test_a_filter_that_does_not_fit_its_table_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        filtered(text).schema(ORDERS)


def test_columns_are_found_whatever_their_case_and_exactly_where_it_matters() -> None:
    schema = schema_of({"id": pa.int64(), "Status": pa.string(), "STATUS": pa.string()})
    given = changes_of(schema, (INSERT, {"id": 1, "Status": "a", "STATUS": "b"}))

    assert filtered("\"STATUS\" = 'b' AND ID = 1").apply(given)
    with pytest.raises(ConfigError, match="does not have this column"):
        filtered("status = 'b'").schema(schema)


def test_later_rules_see_what_earlier_ones_made() -> None:
    rules = [
        TransformRule(table=("public.orders",), add={"doubled": "total * 2"}),
        TransformRule(table=("*",), filter="doubled > 10"),
    ]
    given = changes_of(
        ORDERS, (INSERT, {"id": 1, "total": Decimal(5)}), (INSERT, {"id": 2, "total": Decimal(6)})
    )

    found = only(RowTransforms(rules, []).apply(given))

    assert [row["id"] for _, row in told(found)] == [2]


def both(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def opposite(value: Truth) -> Truth:
    return None if value is None else not value


def compared(name: str, sign: str, number: int) -> Condition:
    operators: dict[str, Callable[[int], bool]] = {
        "<": lambda value: value < number,
        "=": lambda value: value == number,
        "<>": lambda value: value != number,
    }

    def answer(row: Row) -> Truth:
        return None if row[name] is None else operators[sign](row[name])

    return f"{name} {sign} {number}", answer


SIMPLE = st.builds(
    compared, st.sampled_from("ab"), st.sampled_from(["<", "=", "<>"]), st.integers(-2, 2)
)
UNKNOWN = st.sampled_from("ab").map(
    lambda name: (f"{name} IS NULL", lambda row, name=name: row[name] is None)
)


def combined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    def conjunction(left: Condition, right: Condition) -> Condition:
        return f"({left[0]} AND {right[0]})", lambda row: both(left[1](row), right[1](row))

    def negation(one: Condition) -> Condition:
        return f"NOT ({one[0]})", lambda row: opposite(one[1](row))

    return st.builds(conjunction, inner, inner) | st.builds(negation, inner)


CONDITIONS = st.recursive(SIMPLE | UNKNOWN, combined, max_leaves=6)
VALUES = st.none() | st.integers(-3, 3)
ROWS = st.fixed_dictionaries({"id": st.integers(0, 4), "a": VALUES, "b": VALUES})


@pytest.mark.property
@settings(max_examples=settings().max_examples // 3)
@given(condition=CONDITIONS, rows=st.lists(ROWS, min_size=1, max_size=20))
def test_a_filter_answers_as_three_valued_logic_does(condition: Condition, rows: list[Row]) -> None:
    text, answer = condition
    given = changes_of(NUMBERS, *[(INSERT, row) for row in rows])

    found = filtered(text, "public.numbers").apply(given)

    passing = [row for row in rows if answer(row) is True]
    assert [row for changes in found for _, row in told(changes)] == passing


def history(draws: list[tuple[str, Row]]) -> list[tuple[Operation, Row]]:
    """Only what can happen: a row is updated or deleted while it is there."""
    happened: list[tuple[Operation, Row]] = []
    there: set[int] = set()
    for kind, row in draws:
        if kind == "truncate":
            happened.append((TRUNCATE, {}))
            there.clear()
        elif kind == "delete" and row["id"] in there:
            happened.append((DELETE, {"id": row["id"]}))
            there.discard(row["id"])
        elif kind == "write":
            happened.append((UPDATE if row["id"] in there else INSERT, row))
            there.add(row["id"])
    return happened


HISTORIES = st.lists(
    st.tuples(st.sampled_from(["write", "write", "write", "delete", "truncate"]), ROWS), max_size=12
).map(history)


def stretches(happened: list[tuple[Operation, Row]], length: int) -> list[TableChanges]:
    """As a reader gets them: in batches, each truncate alone."""
    found: list[list[tuple[Operation, Row]]] = []
    for change in happened:
        is_apart = TRUNCATE in (change[0], found[-1][-1][0]) if found else True
        if is_apart or len(found[-1]) == length:
            found.append([])
        found[-1].append(change)
    return [changes_of(NUMBERS, *each) for each in found]


def kept(
    held: dict[tuple[Any, ...], Row], answer: Callable[[Row], Truth]
) -> dict[tuple[Any, ...], Row]:
    return {key: row for key, row in held.items() if answer(row) is True}


@pytest.mark.property
@settings(max_examples=settings().max_examples // 3)
@given(condition=CONDITIONS, happened=HISTORIES, length=st.integers(1, 7))
def test_folding_the_filtered_log_gives_the_filtered_table(
    condition: Condition, happened: list[tuple[Operation, Row]], length: int
) -> None:
    transform = filtered(condition[0], "public.numbers")
    log = stretches(happened, length)

    found = mirror(part for changes in log for part in transform.apply(changes))

    assert found == kept(mirror(log), condition[1])


@pytest.mark.property
@settings(max_examples=settings().max_examples // 3)
@given(condition=CONDITIONS, happened=HISTORIES, slept_at=st.integers(0, 12))
def test_a_target_that_slept_through_compaction_is_filtered_right_as_well(
    condition: Condition, happened: list[tuple[Operation, Row]], slept_at: int
) -> None:
    """Compaction keeps the newest record of a key: the delete before a new insert is gone."""
    transform = filtered(condition[0], "public.numbers")
    seen, missed = happened[:slept_at], happened[slept_at:]
    newest = {row.get("id", "truncate"): place for place, (_, row) in enumerate(missed)}
    left = [change for place, change in enumerate(missed) if place in newest.values()]

    held = mirror(part for changes in stretches(seen, 3) for part in transform.apply(changes))
    found = mirror(
        (
            part
            for changes in stretches(left, 3)
            for part in transform.apply(changes, may_have_gaps=True)
        ),
        held,
    )

    assert found == kept(mirror(stretches(happened, 1)), condition[1])
