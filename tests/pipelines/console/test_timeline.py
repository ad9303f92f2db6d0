"""The timeline of a pipeline has its schemas, comparisons, commands and dead letters, in order."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.pipelines.console.timeline import Timeline, TimelineEntry, timeline
from headwater.pipelines.journal.audit import AuditedAction, new_action, write_action
from tests.pipelines.console.served_console import served_console, sources_of
from tests.pipelines.console.test_letters_and_runs import PROBLEM, set_aside
from tests.pipelines.pipeline_in_memory import tables_of
from tests.served_log import ServedLog, served_log

PIPELINE = "shop"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "data") as log:
        log.write(
            tables_of([("orders", "c", key, "x") for key in range(3)], commit=1),
            tables_of([("items", "c", 1, "x")], commit=2),
        )
        yield log


def with_column(changes: TableChanges, column: Column) -> TableChanges:
    """The same rows after a column was added, empty in each of them."""
    schema = changes.schema
    wider = TableSchema(schema.table, (*schema.columns, column), schema.key)
    rows = changes.rows.append_column(column.name, pa.nulls(len(changes.rows), column.type))
    return replace(changes, schema=wider, rows=rows)


def look(
    served: ServedLog, table: str = "", verified: Mapping[str, Any] = MappingProxyType({})
) -> Timeline:
    return served.run(lambda: timeline(served.log, PIPELINE, table, verified=verified))


def told(entries: Sequence[TimelineEntry]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.table, each.words) for each in entries]


def record(served: ServedLog, action: AuditedAction) -> None:
    served.run(lambda: write_action(served.log, action))


def action(command: str, target: str, *, problem: str = "") -> AuditedAction:
    begun = new_action(command, target, {})
    outcome = "failed" if problem else "done"
    return replace(begun, outcome=outcome, ended_ms=begun.started_ms + 5, problem=problem)


@pytest.mark.slow
def test_a_log_without_pipelines_has_an_empty_timeline(tmp_path: Path) -> None:
    with served_log(tmp_path / "data") as served:
        assert look(served) == Timeline([], is_whole=True)


@pytest.mark.slow
def test_each_schema_says_what_it_has_changed(served: ServedLog) -> None:
    [changes] = tables_of([("orders", "c", 9, "x")], commit=3)

    served.write([with_column(changes, Column("note", pa.string()))])

    found = look(served, "public.orders")
    assert told(found.entries) == [
        ("schema", "public.orders", "column note added (string)"),
        ("schema", "public.orders", "first schema, 2 columns"),
    ]


def test_a_table_has_what_was_done_to_its_pipeline_and_not_to_others(served: ServedLog) -> None:
    record(served, action("pause", "shop"))
    record(served, action("rebuild", "shop/orders", problem="no room is left"))
    record(served, action("rebuild", "shop/public.items"))
    record(served, action("pause", "shop-of-others"))

    commands = [each for each in look(served, "public.orders").entries if each.kind == "command"]

    assert sorted(told(commands)) == [
        ("command", "", "pause done"),
        ("command", "public.orders", "rebuild: no room is left"),
    ]
    assert [each.is_problem for each in commands] == [
        each.words != "pause done" for each in commands
    ]


def test_a_command_whose_process_was_killed_has_no_known_end(served: ServedLog) -> None:
    record(served, new_action("rebuild", "shop/public.orders", {}))

    assert "rebuild has no known end" in [each.words for each in look(served).entries]


def test_a_comparison_is_there_once_whether_a_command_or_a_schedule_made_it(
    served: ServedLog,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    verdict = {"at_ms": now_ms, "is_equal": True, "differing": 0, "problem": ""}
    differing = {"at_ms": now_ms, "is_equal": False, "differing": 2, "problem": ""}
    record(served, action("verify", "shop/public.orders"))

    found = look(served, verified={"public.orders": verdict, "public.items": differing})

    comparisons = [each for each in found.entries if each.kind == "comparison"]
    assert sorted(told(comparisons)) == [
        ("comparison", "public.items", "verify: 2 keys differ"),
        ("comparison", "public.orders", "verify done"),
    ]


def test_dead_letters_of_one_minute_and_problem_are_one_entry(served: ServedLog) -> None:
    served.run(lambda: set_aside(served))

    found = look(served, "public.orders")

    assert ("dead letter", "public.orders", f"3 dead letters of sink: {PROBLEM}") in told(
        found.entries
    )
    assert [each.at_ms for each in found.entries] == sorted(
        (each.at_ms for each in found.entries), reverse=True
    )


@pytest.mark.slow
def test_the_console_answers_with_the_timeline_of_a_pipeline_and_of_a_table(
    served: ServedLog,
) -> None:
    async def ask() -> None:
        async with served_console(sources_of(served.log)) as console:
            whole = await console.ask("/pipelines/shop/timeline")
            of_table = await console.ask("/pipelines/shop/tables/public.items/timeline")
            assert {each["table"] for each in whole["entries"]} == {"public.orders", "public.items"}
            assert {each["table"] for each in of_table["entries"]} == {"public.items"}

    served.run(ask)
