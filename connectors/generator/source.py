"""The generator as a source: ranges of a generated history as batches at a set rate."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.connectors.generator.history import history_of, name_of
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.source import Control, SnapshotProgress, SourceContext, SourceSnapshot
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import (
    DecodeError,
    Diagnostic,
    PositionLost,
    SourceRejected,
)
from headwater.core_log.model.changes import (
    ChangeBatch,
    ColumnOrValue,
    Positions,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from headwater.connectors.generator.history import (
        GeneratedBatch,
        GeneratedChanges,
        GeneratedHistory,
    )

STREAM, HISTORY = "stream", "history"
"""Parts of the position: the number of emitted transactions, and the name of the history."""
WAIT_MS_MIN = 5


class GeneratorSource:
    """Exactly once: the position is a transaction's number, and the history continues identically
    from any number. Rows are the same for the same seed; commit times are the present, so that
    the displayed lag is real."""

    Settings = GeneratorSettings

    def __init__(self, settings: GeneratorSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        from headwater.connectors.generator.history import end_of, generated_batches, next_end

        history, settings = self._history, self._settings
        at, named = self._resume(resume_from)
        last = None if settings.total is None else end_of(history, settings.total)
        if last is None and self._context.until_end:
            last = history.opening  # later ones are made on demand
        if at >= history.opening:
            self._tell(history.opening)  # an earlier run has emitted the initial rows
        pace = Pace(self._context.clock, settings.rate)
        while last is None or at < last:
            room = settings.batch_rows
            if at >= history.opening:
                room = min(room, pace.room())
            if room < 1:
                await asyncio.sleep(pace.wait_ms() / 1_000)
                continue
            end = next_end(history, at, rows_max=room)
            end = end if last is None else min(end, last)
            for generated in generated_batches(history, at, end, rows_max=settings.batch_rows):
                batch = self._batch(generated, named, is_snapshot=at < history.opening)
                pace.add(sum(len(changes) for changes in batch.tables))
                named = named if generated.end is None else {}
                yield batch
            self._tell(end)
            at = end

    async def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the source keeps no state."""

    async def control(self, control: Control) -> None:
        raise SourceRejected(
            "the generator supports no signals",
            hint="change the keys of the source, and begin a new history",
            kind=control.kind,
        )

    async def discover(self) -> Sequence[TableSchema]:
        return self._history.schemas

    async def row_estimates(self) -> Mapping[TableId, int]:
        return self._history.opening_rows()

    async def examine(self) -> Sequence[Diagnostic]:
        return ()

    async def drop(self) -> Sequence[str]:
        return ()

    @asynccontextmanager
    async def snapshot(self, reached: Positions) -> AsyncIterator[SourceSnapshot]:
        """Returns the tables as emitted so far."""
        from headwater.connectors.generator.history import snapshot_at

        at, _ = self._resume(reached)
        committed = source_times(self._context.clock.now_ms() * 1_000)
        yield snapshot_at(
            at,
            self._settings,
            list(self._history.schemas),
            {STREAM: str(at)},
            lambda table: self._source_block(table, committed, is_snapshot=True),
        )

    @cached_property
    def _history(self) -> "GeneratedHistory":
        return history_of(self._settings)

    def _resume(self, positions: Positions) -> tuple[int, dict[str, str]]:
        """Returns where to continue, and the history's part of the first position."""
        ours = name_of(self._settings)
        if not positions:
            return 0, {HISTORY: ours}
        if positions.get(HISTORY) != ours:
            raise PositionLost(
                "the stored position is of another generated history",
                hint="restore its keys, or start again: headwater drop PIPELINE --data",
                stored=positions.get(HISTORY),
                configured=ours,
            )
        try:
            return int(positions[STREAM]), {}
        except (KeyError, ValueError):
            raise DecodeError("the stored position is not a transaction's number") from None

    def _batch(
        self, generated: "GeneratedBatch", named: dict[str, str], *, is_snapshot: bool
    ) -> ChangeBatch:
        positions = {} if generated.end is None else {STREAM: str(generated.end), **named}
        committed = source_times(self._context.clock.now_ms() * 1_000)
        tables = [
            self._changes(part, committed, is_snapshot=is_snapshot) for part in generated.parts
        ]
        return ChangeBatch(tuple(tables), positions)

    def _changes(
        self, part: "GeneratedChanges", committed: dict[str, ColumnOrValue], *, is_snapshot: bool
    ) -> TableChanges:
        numbers, commits = _cells_of(part)
        block = self._source_block(part.schema.table, committed, is_snapshot=is_snapshot)
        source = block | {"txId": numbers}
        return TableChanges(
            part.schema,
            part.rows,
            part.operations,
            source,
            commits=commits,
            indexes=pa.array(part.indexes),
        )

    def _source_block(
        self, table: TableId, committed: dict[str, ColumnOrValue], *, is_snapshot: bool
    ) -> dict[str, ColumnOrValue]:
        return {
            "version": _version(),
            "connector": "generator",
            "name": self._context.pipeline,
            **committed,
            "snapshot": "true" if is_snapshot else "false",
            "db": table.namespace,
            "sequence": None,
            "schema": table.namespace,
            "table": table.name,
        }

    def _tell(self, end: int) -> None:
        """Reports the progress of the initial rows."""
        history = self._history
        if end > history.opening:
            return
        read = history.rows_before(end)
        for table, count in history.opening_rows().items():
            rows = min(max(read, 0), count)
            read -= count
            self._context.report(SnapshotProgress(table, rows, count, is_done=rows == count))


@dataclass(slots=True)
class Pace:
    """A rate limit of changes. Delays are made up for, but at most one second."""

    clock: Clock
    rate: int
    started_ms: int | None = None
    gone: float = 0

    def room(self) -> int:
        return int(self._due()) if self.rate else 1 << 62

    def wait_ms(self) -> float:
        """Returns the time until the next change is due."""
        return max(WAIT_MS_MIN, (1 - self._due()) * 1_000 / self.rate)

    def _due(self) -> float:
        now_ms = self.clock.monotonic_ms()
        if self.started_ms is None:
            self.started_ms = now_ms - -(-1_000 // self.rate)
        due = (now_ms - self.started_ms) * self.rate / 1_000 - self.gone
        late = max(0.0, due - self.rate)
        self.gone += late
        return due - late

    def add(self, changes: int) -> None:
        """Counts emitted changes; initial rows are not counted."""
        if self.started_ms is not None:
            self.gone += changes


@cache
def _version() -> str:
    return version("headwater")


def _cells_of(part: "GeneratedChanges") -> tuple[ColumnOrValue, ColumnOrValue]:
    """Returns the transactions' numbers and names: one value if there is only one."""
    first, last = int(part.transactions[0]), int(part.transactions[-1])
    if first == last:
        return first, str(first)
    numbers = pa.array(part.transactions)
    return numbers, numbers.cast(pa.string())
