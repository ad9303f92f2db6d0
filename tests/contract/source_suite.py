"""What every source promises: a test module inherits `SourceSuite` and brings a `ground`."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pytest

from headwater.connectors.source import RowEstimating, Source, SourceContext, SourceReport
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch, Operation, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema
from tests.fakes import SimulatedClock

RESUMED_MAX = 12
"""Batches after which a resumption is tried, spread over the whole history."""
POSITION_LENGTH_MAX = 4_096
KEYED = {Operation.UPDATE, Operation.DELETE}


class SourceGround(Protocol):
    """An outside system that holds a small history and does not change during a test."""

    change_count: int
    """Changes that there are to be read."""
    is_exact: bool
    """False where a resumption may repeat changes, as the source's page says in its first line."""

    def open(self) -> Source:
        """A new source on the same system, as after a restart."""
        ...

    def outside(self) -> object:
        """What is out there, to be compared with what is there later."""
        ...

    def held(self) -> object:
        """What this process holds open of it: connections, files."""
        ...


class Change(NamedTuple):
    operation: int
    row: dict[str, Any]
    commit: str
    place: int | None


Told = dict[TableId, list[Change]]


class After(NamedTuple):
    """A batch, and all parts of the position as they are after it."""

    batch: ChangeBatch
    positions: Positions


def context(clock: Clock | None = None, *, directory: Path = Path()) -> SourceContext:
    """A pipeline for the source; what it reports is not looked at."""
    return SourceContext("shop", directory, clock or SimulatedClock(1_000_000), ignore)


def ignore(_: SourceReport) -> None:
    pass


class SourceSuite:
    """Promises that the pipeline builds on. Nothing here knows what kind of source it is."""

    async def test_the_history_is_read_whole(self, ground: SourceGround) -> None:
        told = await read(ground, {})

        assert count_of(told) == ground.change_count
        assert told[-1].batch.positions, "a history ends between transactions"

    async def test_resumed_after_any_batch_it_goes_on_where_it_was(
        self, ground: SourceGround
    ) -> None:
        told = await read(ground, {})
        places = [at for at, after in enumerate(told) if after.batch.positions]

        for at in spread(places):
            done = count_of(told[: at + 1])
            resumed = await read(ground, told[at].positions, at_least=ground.change_count - done)

            if ground.is_exact:
                assert flat(resumed) == flat(told[at + 1 :]), told[at].positions
            else:
                assert folded([*told[: at + 1], *resumed]) == folded(told), told[at].positions

    async def test_an_acknowledgement_changes_nothing_for_a_resumption(
        self, ground: SourceGround
    ) -> None:
        told = await read(ground, {})
        source = ground.open()

        await source.acknowledge(told[0].positions)
        await source.acknowledge(told[-1].positions)
        resumed = await read(ground, told[-1].positions, at_least=0)

        assert not ground.is_exact or not count_of(resumed)

    async def test_rows_are_what_their_schema_says(self, ground: SourceGround) -> None:
        for after in await read(ground, {}):
            for changes in after.batch.tables:
                check_columns(changes)
                check_cells(changes)

    async def test_keys_are_never_null_and_deletes_carry_them(self, ground: SourceGround) -> None:
        for after in await read(ground, {}):
            for changes in after.batch.tables:
                if not changes.is_truncate:
                    assert not any(column.null_count for column in changes.keys.columns)
                if KEYED & set(changes.operations.to_pylist()):
                    assert changes.schema.key, "what is updated or deleted is named by a key"

    async def test_positions_can_be_shown(self, ground: SourceGround) -> None:
        for after in await read(ground, {}):
            for name, value in after.batch.positions.items():
                assert name and name.isprintable() and value.isprintable()
                assert len(name) <= POSITION_LENGTH_MAX >= len(value)

    async def test_the_tables_that_were_discovered_are_those_that_come(
        self, ground: SourceGround
    ) -> None:
        discovered = {schema.table: schema for schema in await ground.open().discover()}

        told = await read(ground, {})

        for schema in schemas_of(told):
            assert alike(discovered[schema.table], schema)

    async def test_rows_are_estimated_of_tables_that_were_discovered(
        self, ground: SourceGround
    ) -> None:
        source, before = ground.open(), ground.outside()
        discovered = {schema.table for schema in await source.discover()}

        found = await source.row_estimates() if isinstance(source, RowEstimating) else {}

        assert found.keys() <= discovered
        assert all(isinstance(rows, int) and rows >= 0 for rows in found.values())
        assert ground.outside() == before

    async def test_looking_changes_nothing_outside(self, ground: SourceGround) -> None:
        before = ground.outside()

        found = await ground.open().discover()
        findings = await ground.open().examine()

        assert found and not [finding for finding in findings if finding.is_fatal]
        assert ground.outside() == before

    async def test_dropping_twice_finds_nothing_the_second_time(self, ground: SourceGround) -> None:
        first = await read(ground, {})
        await ground.open().drop()

        assert not await ground.open().drop()
        assert folded(await read(ground, {})) == folded(first)

    @pytest.mark.usefixtures("uncollected")
    async def test_an_iteration_that_is_closed_holds_nothing(self, ground: SourceGround) -> None:
        held, tasks = ground.held(), asyncio.all_tasks()
        changes = ground.open().changes({})

        await anext(changes)
        await changes.aclose()

        assert ground.held() == held
        assert asyncio.all_tasks() == tasks

    @pytest.mark.usefixtures("uncollected")
    async def test_an_iteration_that_is_cancelled_while_it_waits_holds_nothing(
        self, ground: SourceGround
    ) -> None:
        held, tasks = ground.held(), asyncio.all_tasks()
        everything_came = asyncio.Event()
        reading = asyncio.ensure_future(
            read_on(ground.open(), ground.change_count, everything_came)
        )

        await everything_came.wait()
        if reading.done():
            reading.result()  # which raises what kept everything from coming
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        assert ground.held() == held
        assert asyncio.all_tasks() == tasks


async def read(
    ground: SourceGround, resume_from: Positions, *, at_least: int | None = None
) -> list[After]:
    """Batches until that many changes have come, by default all there are, or the source ends."""
    wanted = ground.change_count if at_least is None else at_least
    found: list[After] = []
    if not wanted:
        return found
    async with aclosing(iterate(ground.open(), resume_from)) as told:
        async for after in told:
            found.append(after)
            if count_of(found) >= wanted and after.batch.positions:
                break
    return found


async def iterate(source: Source, resume_from: Positions) -> AsyncGenerator[After, None]:
    positions = dict(resume_from)
    async with aclosing(source.changes(resume_from)) as batches:
        async for batch in batches:
            positions |= batch.positions
            yield After(batch, dict(positions))


async def read_on(source: Source, wanted: int, everything_came: asyncio.Event) -> None:
    """As the pipeline does: for ever, or until the source ends."""
    count = 0
    try:
        async with aclosing(source.changes({})) as batches:
            async for batch in batches:
                count += count_in(batch)
                if count >= wanted:
                    everything_came.set()
    finally:
        everything_came.set()


def count_of(told: Iterable[After]) -> int:
    return sum(count_in(after.batch) for after in told)


def count_in(batch: ChangeBatch) -> int:
    return sum(len(changes) for changes in batch.tables)


def spread(places: Sequence[int]) -> Sequence[int]:
    step = max(1, len(places) // RESUMED_MAX)
    return sorted({*places[::step], places[-1]})


def flat(told: Iterable[After]) -> Told:
    """Every change of each table in order, wherever batches were cut."""
    found: Told = defaultdict(list)
    for after in told:
        for changes in after.batch.tables:
            found[changes.schema.table] += rows_of(changes)
    return dict(found)


def rows_of(changes: TableChanges) -> list[Change]:
    count = len(changes)
    commits = changes.commits
    names = commits.to_pylist() if isinstance(commits, pa.Array) else [str(commits)] * count
    indexes = [None] * count if changes.indexes is None else changes.indexes.to_pylist()
    return [
        Change(*parts)
        for parts in zip(
            changes.operations.to_pylist(), changes.rows.to_pylist(), names, indexes, strict=True
        )
    ]


def folded(told: Iterable[After]) -> Mapping[TableId, Mapping[Any, dict[str, Any]]]:
    """The newest row of each key; tables without a key as the set of their rows."""
    keys = {schema.table: schema.key for after in told for schema in schemas_of([after])}
    tables: dict[TableId, dict[Any, dict[str, Any]]] = {}
    for table, changes in flat(told).items():
        rows = tables.setdefault(table, {})
        for change in changes:
            apply(rows, change, keys[table] or tuple(change.row))
    return tables


def apply(rows: dict[Any, dict[str, Any]], change: Change, key: tuple[str, ...]) -> None:
    """The slow and obvious way to follow a change."""
    name = tuple(repr(change.row[column]) for column in key)
    if change.operation == Operation.TRUNCATE:
        rows.clear()
    elif change.operation == Operation.DELETE:
        rows.pop(name, None)
    else:
        rows[name] = change.row


def schemas_of(told: Iterable[After]) -> list[TableSchema]:
    return [changes.schema for after in told for changes in after.batch.tables]


def alike(discovered: TableSchema, schema: TableSchema) -> bool:
    """The ids of columns too, but that changes have 0 where an id is not certain."""
    ids = {column.name: column.id for column in schema.columns}
    expected = tuple(
        column if ids.get(column.name) else replace(column, id=0) for column in discovered.columns
    )
    return (expected, discovered.key) == (schema.columns, schema.key)


def check_columns(changes: TableChanges) -> None:
    schema = changes.schema
    assert changes.rows.schema.equals(schema.arrow), schema.table
    changes.rows.validate(full=True)
    required = [column.name for column in schema.columns if not column.is_nullable]
    is_whole = [code in (0, 1, 2) for code in changes.operations.to_pylist()]
    whole = changes.rows.filter(pa.array(is_whole))
    assert not [name for name in required if whole.column(name).null_count]


def check_cells(changes: TableChanges) -> None:
    """What stands beside the rows is one for all of them, or as long as they are."""
    count = len(changes)
    assert len(changes.operations) == count and changes.operations.type == pa.uint8()
    assert not changes.operations.null_count
    cells = [*changes.source.values(), changes.commits, changes.indexes, changes.before]
    assert {len(cell) for cell in cells if isinstance(cell, pa.Array)} <= {count}
    assert changes.source["connector"] and changes.source["name"] == "shop"
    assert {"ts_ms", "ts_us", "ts_ns"} <= changes.source.keys()
    if Operation.TRUNCATE in changes.operations.to_pylist():
        assert changes.is_truncate, "a truncate stands alone"
