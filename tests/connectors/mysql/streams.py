"""A running source of MySQL, and what it says of a history."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.source import SourceContext, SourceReport
from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.model.changes import ChangeBatch, Operation, Phase
from tests.connectors.mysql.conftest import MysqlGuest

LETTERS = {each.value: letter for each, letter in zip(Operation, "rcudtr", strict=True)}


def ignore(_: SourceReport) -> None:
    pass


def source_context(*, until_end: bool = False, **given: Any) -> SourceContext:
    return SourceContext(
        "shop", Path(), SystemClock(), given.pop("report", ignore), until_end=until_end, **given
    )


@dataclass(slots=True)
class MysqlStory:
    """What a source has said so far."""

    batches: list[ChangeBatch] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    _taken: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, batch: ChangeBatch) -> None:
        self.batches.append(batch)
        self.positions |= batch.positions
        self._taken.set()

    def take_all(self, other: "MysqlStory") -> None:
        for batch in other.batches:
            self.take(batch)

    async def came(self, *, rows: int) -> None:
        """Until that many changes have come, or the source has ended, with an error or without."""
        while sum(len(changes) for batch in self.batches for changes in batch.tables) < rows:
            if self._ended.is_set():
                return
            self._taken.clear()
            await self._taken.wait()

    async def came_last(self, table: str, id: int) -> None:
        """Until the change of a row has come after which there are no others."""
        while not any(
            each.schema.table.name == table and each.rows.column("id")[-1].as_py() == id
            for batch in self.batches[-1:]
            for each in batch.tables
        ):
            self._taken.clear()
            await self._taken.wait()

    async def ended(self) -> None:
        """Until the source has ended, by itself or with an error."""
        await self._ended.wait()

    def end(self) -> None:
        self._ended.set()
        self._taken.set()

    def events(self, table: str = "") -> list[tuple[str, dict[str, Any]]]:
        return [
            (LETTERS[operation], row)
            for batch in self.batches
            for changes in batch.tables
            if table in ("", changes.schema.table.name)
            for operation, row in zip(
                changes.operations.to_pylist(), changes.rows.to_pylist(), strict=True
            )
        ]

    def letters(self, table: str = "") -> str:
        return "".join(letter for letter, _ in self.events(table))

    def fold(self, table: str) -> dict[str, dict[str, Any]]:
        """The newest row of each key, with what a re-read deletes."""
        state = _Fold(table)
        for batch in self.batches:
            state.take(batch)
        return state.rows


@dataclass(slots=True)
class _Fold:
    table: str
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    """The key of the records of the topic."""
    seen: set[str] | None = None
    """Keys that came since a re-read has started."""

    def take(self, batch: ChangeBatch) -> None:
        replacements = [each for each in batch.replacements if each.schema.table.name == self.table]
        for each in replacements:
            if each.phase is Phase.STARTED:
                self.seen, self.key = set(), each.schema.key
        for changes in batch.tables:
            if changes.schema.table.name == self.table:
                self.key = changes.schema.key if self.key is None else self.key
                assert changes.schema.key == self.key, "records of one key share a topic"
                for operation, row in zip(
                    changes.operations.to_pylist(), changes.rows.to_pylist(), strict=True
                ):
                    self._apply(operation, row, changes.schema.key)
        if any(each.phase is Phase.COMPLETE for each in replacements):
            assert self.seen is not None, "a re-read starts before it is complete"
            self.rows = {key: row for key, row in self.rows.items() if key in self.seen}
            self.seen = None

    def _apply(self, operation: int, row: dict[str, Any], key: tuple[str, ...]) -> None:
        if operation == Operation.TRUNCATE:
            self.rows.clear()
            return
        name = json.dumps([row[column] for column in key], default=str)
        if operation == Operation.DELETE:
            self.rows.pop(name, None)
            return
        self.rows[name] = row
        if self.seen is not None:
            self.seen.add(name)


async def run_once(
    guest: MysqlGuest,
    story: MysqlStory | None = None,
    context: Any = None,
    **settings: Any,
) -> MysqlStory:
    """Everything up to now, from where the story has come to."""
    told = story or MysqlStory()
    given = source_context(until_end=True, **(context or {}))
    source = MysqlSource(guest.settings(**settings), given)
    async with aclosing(source.changes(dict(told.positions))) as batches:
        async for batch in batches:
            told.take(batch)
    return told


@asynccontextmanager
async def running(
    guest: MysqlGuest,
    positions: Mapping[str, str] | None = None,
    *,
    settle_ms: int = 0,
    clock: Clock | None = None,
    hold: Callable[[ChangeBatch], Awaitable[None]] | None = None,
    **settings: Any,
) -> AsyncIterator[MysqlStory]:
    """`hold` is called with each batch that was taken, before the next one."""
    told = MysqlStory(positions=dict(positions or {}))
    context = source_context(settle_ms=settle_ms)
    if clock is not None:
        context = replace(context, clock=clock)
    source = MysqlSource(guest.settings(**settings), context)
    failure: list[BaseException] = []

    async def follow() -> None:
        try:
            async with aclosing(source.changes(dict(told.positions))) as batches:
                async for batch in batches:
                    told.take(batch)
                    if hold is not None:
                        await hold(batch)
        finally:
            told.end()

    reading = asyncio.ensure_future(follow())
    try:
        yield told
    finally:
        if reading.done() and reading.exception() is not None:
            failure.append(reading.exception())  # type: ignore[arg-type]
        reading.cancel()
        await asyncio.wait([reading])
    if failure:
        raise failure[0]


def rows_of(guest: MysqlGuest, table: str) -> int:
    [[count]] = guest.execute(f"SELECT count(*) FROM `{table}`")
    return int(count)
