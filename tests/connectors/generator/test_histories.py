"""A made-up history is the same from any place on, and every change meets a row that is there."""

from collections import defaultdict
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from headwater.connectors.generator.history import (
    end_of,
    generated_batches,
    history_of,
    next_end,
    truth,
)
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.generator.source import GeneratorSource, Pace
from headwater.connectors.source import SnapshotProgress, SourceContext, SourceReport
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.changes import Operation, Positions
from headwater.core_log.model.table_schema import TableId
from tests.contract.source_suite import After, apply, context, flat, iterate
from tests.fakes import SimulatedClock

SHOP = GeneratorSettings(size=1_000, total=12_000, rate=0, batch_rows=1_700)
WIDE = GeneratorSettings(
    mode="wide",
    size=2_500,
    total=9_000,
    rate=0,
    transaction_rows=70,
    updates=0.3,
    deletes=0.2,
    batch_rows=1_100,
)
BOTH = pytest.mark.parametrize("settings", [SHOP, WIDE], ids=["shop", "wide"])
ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "order_lines")


@BOTH
async def test_every_change_meets_a_row_that_is_there(settings: GeneratorSettings) -> None:
    told = await tell(settings)

    rows: dict[TableId, set[Any]] = defaultdict(set)
    keys = {schema.table: schema.key for schema in history_of(settings).schemas}
    for table, changes in flat(told).items():
        for change in changes:
            key = tuple(change.row[name] for name in keys[table])
            is_new = change.operation in (Operation.READ, Operation.INSERT)
            assert is_new != (key in rows[table]), change
            if change.operation == Operation.DELETE:
                rows[table].remove(key)
            else:
                rows[table].add(key)


@BOTH
async def test_the_truth_is_what_the_changes_come_to(settings: GeneratorSettings) -> None:
    told = await tell(settings)

    found = truth(settings)

    for table, changes in flat(told).items():
        key = key_of(settings, table)
        rows: dict[Any, dict[str, Any]] = {}
        for change in changes:
            apply(rows, change, key)
        assert sorted(rows.values(), key=lambda row: [row[name] for name in key]) == (
            found[table].to_pylist()
        )


@BOTH
async def test_the_truth_of_any_moment_can_be_asked_for(settings: GeneratorSettings) -> None:
    told = await tell(settings)
    middle = next(after for after in told[len(told) // 2 :] if after.batch.positions)

    until_then = flat(told[: told.index(middle) + 1])
    found = truth(settings, int(middle.positions["stream"]))

    for table, changes in until_then.items():
        key = key_of(settings, table)
        last = {tuple(c.row[k] for k in key): c.operation for c in changes}
        alive = sum(operation != Operation.DELETE for operation in last.values())
        assert found[table].num_rows == alive


@pytest.mark.slow
@BOTH
async def test_a_history_does_not_depend_on_the_size_of_batches(
    settings: GeneratorSettings,
) -> None:
    coarse = await tell(settings)

    fine = await tell(settings.model_copy(update={"batch_rows": 137}))

    assert len(fine) > len(coarse)
    assert flat(fine) == flat(coarse)


@BOTH
def test_changes_are_counted_without_making_them(settings: GeneratorSettings) -> None:
    history = history_of(settings)

    counts = [
        sum(
            len(part.transactions)
            for generated in generated_batches(history, at, at + 1, rows_max=10_000)
            for part in generated.parts
        )
        for at in range(60)
    ]

    assert [history.rows_before(at) for at in range(60)] == [sum(counts[:at]) for at in range(60)]
    for rows in range(0, sum(counts), 13):
        whole = history.transactions_within(rows)
        assert sum(counts[:whole]) <= rows < sum(counts[: whole + 1])


@BOTH
def test_a_batch_holds_whole_transactions_in_their_order(settings: GeneratorSettings) -> None:
    history = history_of(settings)
    at = 0

    while at < end_of(history, 8_000):
        end = next_end(history, at, rows_max=500)
        (generated,) = generated_batches(history, at, end, rows_max=10_000)
        numbers = [
            place
            for part in generated.parts
            for place in zip(part.transactions.tolist(), part.indexes.tolist(), strict=True)
        ]
        for part in generated.parts:
            places = list(zip(part.transactions.tolist(), part.indexes.tolist(), strict=True))
            assert places == sorted(places)
        assert {number for number, _ in numbers} == set(range(at, end))
        for number in range(at, end):
            indexes = sorted(index for where, index in numbers if where == number)
            assert indexes == list(range(len(indexes)))
        at = end


async def test_a_transaction_larger_than_a_batch_comes_in_pieces() -> None:
    settings = WIDE.model_copy(update={"transaction_rows": 2_000, "batch_rows": 600})

    told = await tell(settings)

    changes = [after for after in told if after.batch.tables[0].source["snapshot"] == "false"]
    sizes = [len(after.batch.tables[0]) for after in changes[:4]]
    assert sizes == [600, 600, 600, 200]
    assert [bool(after.batch.positions) for after in changes[:4]] == [False, False, False, True]
    assert flat(changes)[TableId("shop", "wide")][1_999].place == 1_999


async def test_orders_come_to_what_their_lines_come_to() -> None:
    tables = truth(SHOP)

    lines = tables[LINES]
    amounts = pc.multiply(lines["quantity"].cast(pa.decimal128(10, 0)), lines["price"])
    summed = (
        pa.table({"id": lines["order_id"], "amount": amounts})
        .group_by("id")
        .aggregate([("amount", "sum")])
        .sort_by("id")
    )
    assert summed["amount_sum"].to_pylist() == tables[ORDERS]["total"].to_pylist()
    assert set(tables[ORDERS]["customer_id"].to_pylist()) <= set(
        tables[TableId("shop", "customers")]["id"].to_pylist()
    )


@pytest.mark.slow
async def test_another_seed_is_another_history() -> None:
    assert truth(SHOP)[ORDERS] != truth(SHOP.model_copy(update={"seed": 2}))[ORDERS]


async def test_a_position_of_another_history_is_refused() -> None:
    told = await tell(SHOP)
    other = GeneratorSource(SHOP.model_copy(update={"seed": 2}), context())

    with pytest.raises(PositionLost, match="another generated history"):
        await anext(other.changes(told[0].positions))


async def test_the_rows_that_are_there_at_first_are_reported_until_all_are_read() -> None:
    reports: list[SourceReport] = []
    given = context()
    source = GeneratorSource(
        SHOP, SourceContext(given.pipeline, given.directory, given.clock, reports.append)
    )

    async with aclosing(source.changes({})) as batches:
        async for _ in batches:
            pass

    told = [report for report in reports if isinstance(report, SnapshotProgress)]
    newest = {report.table: report for report in told}
    assert all(report.is_done for report in newest.values())
    assert {t.name: r.rows for t, r in newest.items()} == {
        "customers": 500,
        "products": 25,
        "orders": 1_000,
        "order_lines": 2_500,
    }


async def test_a_run_until_the_end_reads_the_snapshot_alone() -> None:
    endless = SHOP.model_copy(update={"total": None})

    source = GeneratorSource(endless, replace(context(), until_end=True))
    told = [after async for after in iterate(source, {})]

    assert sum(len(changes) for after in told for changes in after.batch.tables) == 4_025
    assert {changes.source["snapshot"] for a in told for changes in a.batch.tables} == {"true"}


def test_changes_are_due_at_the_rate() -> None:
    clock = SimulatedClock()
    pace = Pace(clock, rate=100)

    assert pace.room() == 1, "the first goes at once"
    pace.add(1)
    clock.advance(50)
    assert pace.room() == 5
    pace.add(5)
    assert pace.room() == 0
    assert pace.wait_ms() == 10
    clock.advance(60_000)
    assert pace.room() == 100, "what was late for long is not made up for"


def test_a_pace_without_a_rate_always_has_room() -> None:
    assert Pace(SimulatedClock(), rate=0).room() > 1_000_000


def test_deletes_that_would_find_no_row_are_refused() -> None:
    with pytest.raises(ValidationError, match="deletes are more than inserts"):
        GeneratorSettings(updates=0.5, deletes=0.3)


def key_of(settings: GeneratorSettings, table: TableId) -> tuple[str, ...]:
    return next(s.key for s in history_of(settings).schemas if s.table == table)


async def tell(settings: GeneratorSettings, resume_from: Positions | None = None) -> list[After]:
    source = GeneratorSource(settings, context())
    return [after async for after in iterate(source, resume_from or {})]
