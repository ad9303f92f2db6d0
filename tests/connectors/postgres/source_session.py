"""Short histories of a database, and what the source makes of them."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.connectors.postgres.server.lsn import parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import SourceContext, SourceReport
from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.model.changes import (
    ChangeBatch,
    EventMessages,
    Operation,
    Phase,
    TableChanges,
)
from tests.databases import Guest

LATE_S = 0.2
OP_CODES = {each.value: letter for each, letter in zip(Operation, "rcudtr", strict=True)}


def ignore(_: SourceReport) -> None:
    pass


def source_context(*, until_end: bool = False, clock: Clock | None = None) -> SourceContext:
    return SourceContext("shop", Path(), clock or SystemClock(), ignore, until_end=until_end)


@dataclass(frozen=True, slots=True)
class Event:
    """One change, as a test wants to see it."""

    table: str
    operation: str
    row: dict[str, Any]
    before: dict[str, Any] | None
    headers: dict[str, str]
    is_move: bool
    commit: str
    index: int | None


@dataclass(slots=True)
class Story:
    """A running source; `tell` changes the database and returns what the source said of it."""

    guest: Guest
    source: PostgresSource
    batches: "asyncio.Queue[ChangeBatch | Exception]" = field(default_factory=asyncio.Queue)
    positions: dict[str, str] = field(default_factory=dict)
    notices: list[EventMessages] = field(default_factory=list)
    tables: list[TableChanges] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    """Of tables that are read again as a whole."""

    async def tell(self, *statements: str) -> list[Event]:
        await asyncio.to_thread(self.guest.execute, *statements)
        return await self.caught_up()

    async def caught_up(self) -> list[Event]:
        """Everything up to now."""
        end = parse_lsn(self.guest.value("SELECT pg_logical_emit_message(true, 'mark', '')::text"))
        found: list[Event] = []
        while parse_lsn(self.positions.get("stream", "0/0")) < end:
            batch = await self.batches.get()
            if isinstance(batch, Exception):
                raise batch
            self.positions |= batch.positions
            self.notices += batch.notices
            self.tables += batch.tables
            self.phases += [each.phase for each in batch.replacements]
            for changes in batch.tables:
                found += events_of(changes)
        return found

    async def until(self, phase: Phase) -> None:
        """A table that is read again has come to that phase."""
        while phase not in self.phases:
            await self.caught_up()


@contextmanager
def seen_late(pid: int) -> Iterator[None]:
    """That process of the server stands still for a moment, before it sees who has gone."""
    os.kill(pid, signal.SIGSTOP)
    going_on = threading.Timer(LATE_S, os.kill, (pid, signal.SIGCONT))
    going_on.start()
    try:
        yield
    finally:
        going_on.join()


@asynccontextmanager
async def story(
    guest: Guest, *, positions: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Story]:
    """The source has been started, at `positions` where there are some, and has caught up."""
    given = {"url": guest.url, "tables": ["public.*"], **settings}
    source = PostgresSource(PostgresSettings.model_validate(given), source_context())
    told = Story(guest, source, positions=dict(positions or {}))
    reading = asyncio.ensure_future(_read(told))
    try:
        await told.caught_up()
        await told.caught_up()  # the first mark may be older than the slot, and rows still be read
        yield told
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def _read(told: Story) -> None:
    try:
        async with aclosing(told.source.changes(dict(told.positions))) as batches:
            async for batch in batches:
                told.batches.put_nowait(batch)
    except Exception as error:
        told.batches.put_nowait(error)


def events_of(changes: TableChanges) -> list[Event]:
    count = len(changes)
    befores = [None] * count if changes.before is None else changes.before.to_pylist()
    moves = [False] * count if changes.moves is None else changes.moves.to_pylist()
    indexes = [None] * count if changes.indexes is None else changes.indexes.to_pylist()
    commits = changes.commits
    names: Sequence[Any] = [commits] * count if isinstance(commits, str) else commits.to_pylist()  # type: ignore[union-attr]
    headers = {name: column.to_pylist() for name, column in changes.headers.items()}
    return [
        Event(
            changes.schema.table.name,
            OP_CODES[operation],
            row,
            befores[at],
            {
                name: values[at].decode()
                for name, values in headers.items()
                if values[at] is not None
            },
            moves[at],
            names[at],
            indexes[at],
        )
        for at, (operation, row) in enumerate(
            zip(changes.operations.to_pylist(), plain(changes.rows).to_pylist(), strict=True)
        )
    ]


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Times as numbers, as Python's end at the year 9999."""
    columns = {
        name: column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return pa.RecordBatch.from_pydict(columns)


def short(events: Sequence[Event]) -> list[tuple[str, dict[str, Any]]]:
    return [(each.operation, each.row) for each in events]
