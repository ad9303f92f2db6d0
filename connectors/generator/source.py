"""The generator as a source: stretches of a made-up history, at their pace, as batches."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.generator.snapshot import history_of, name_of
from headwater.connectors.source import Control, SnapshotProgress, SourceContext, SourceSnapshot
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import DecodeError, PositionLost, SourceRejected
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
"""Parts of the position: the number of transactions told, and of which history."""
WAIT_MS_MIN = 5


class GeneratorSource:
    """Exactly once: the position is a transaction's number, and from any number on the history
    goes on as it would have. Its rows are the same for the same seed; its commit times are those
    of now, so that the lag that is shown is real."""

    Settings = GeneratorSettings

    def __init__(self, settings: GeneratorSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        from headwater.connectors.generator.history import end_of, next_end, pieces

        history, settings = self._history, self._settings
        at, named = self._resume(resume_from)
        last = None if settings.total is None else end_of(history, settings.total)
        if last is None and self._context.until_end:
            last = history.opening  # what comes after it is made when it is asked for
        if at >= history.opening:
            self._tell(history.opening)  # an earlier life has read what is there at first
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
            for piece in pieces(history, at, end, rows_max=settings.batch_rows):
                batch = self._batch(piece, named, is_snapshot=at < history.opening)
                pace.went(sum(len(changes) for changes in batch.tables))
                named = named if piece.end is None else {}
                yield batch
            self._tell(end)
            at = end

    async def acknowledge(self, positions: Positions) -> None:
        """Nothing is kept, so nothing can be forgotten."""

    async def control(self, control: Control) -> None:
        raise SourceRejected(
            "a made-up history takes no orders",
            hint="change the keys of the source, and begin a new history",
            kind=control.kind,
        )

    async def discover(self) -> Sequence[TableSchema]:
        return self._history.schemas

    async def row_estimates(self) -> Mapping[TableId, int]:
        """Before the first change."""
        return self._history.opening_rows()

    async def examine(self) -> Sequence[Diagnostic]:
        return ()

    async def drop(self) -> Sequence[str]:
        return ()

    @asynccontextmanager
    async def snapshot(self, reached: Positions) -> AsyncIterator[SourceSnapshot]:
        """Of exactly what has been told so far."""
        from headwater.connectors.generator.snapshot import snapshot_at

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
        """Where to go on, and what the first batch has to say of the history it belongs to."""
        ours = name_of(self._settings)
        if not positions:
            return 0, {HISTORY: ours}
        if positions.get(HISTORY) != ours:
            raise PositionLost(
                "the stored position is of another made-up history",
                hint="put its keys back, or begin anew: headwater drop PIPELINE --data",
                stored=positions.get(HISTORY),
                configured=ours,
            )
        try:
            return int(positions[STREAM]), {}
        except (KeyError, ValueError):
            raise DecodeError("the stored position is no transaction's number") from None

    def _batch(
        self, piece: "GeneratedBatch", named: dict[str, str], *, is_snapshot: bool
    ) -> ChangeBatch:
        positions = {} if piece.end is None else {STREAM: str(piece.end), **named}
        committed = source_times(self._context.clock.now_ms() * 1_000)
        tables = [
            self._changes(stretch, committed, is_snapshot=is_snapshot)
            for stretch in piece.stretches
        ]
        return ChangeBatch(tuple(tables), positions)

    def _changes(
        self, stretch: "GeneratedChanges", committed: dict[str, ColumnOrValue], *, is_snapshot: bool
    ) -> TableChanges:
        numbers, commits = _cells_of(stretch)
        block = self._source_block(stretch.schema.table, committed, is_snapshot=is_snapshot)
        source = block | {"txId": numbers}
        return TableChanges(
            stretch.schema,
            stretch.rows,
            stretch.operations,
            source,
            commits=commits,
            indexes=pa.array(stretch.indexes),
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
        """How much of what is there at first has been read."""
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
    """How many changes may go by now. What was late is made up for, but no more than a second."""

    clock: Clock
    rate: int
    started_ms: int | None = None
    gone: float = 0

    def room(self) -> int:
        return int(self._due()) if self.rate else 1 << 62

    def wait_ms(self) -> float:
        """Until the next change is due."""
        return max(WAIT_MS_MIN, (1 - self._due()) * 1_000 / self.rate)

    def _due(self) -> float:
        now_ms = self.clock.monotonic_ms()
        if self.started_ms is None:
            self.started_ms = now_ms - -(-1_000 // self.rate)
        due = (now_ms - self.started_ms) * self.rate / 1_000 - self.gone
        late = max(0.0, due - self.rate)
        self.gone += late
        return due - late

    def went(self, changes: int) -> None:
        """Those that were there at first are not counted."""
        if self.started_ms is not None:
            self.gone += changes


@cache
def _version() -> str:
    return version("headwater")


def _cells_of(stretch: "GeneratedChanges") -> tuple[ColumnOrValue, ColumnOrValue]:
    """The transactions' numbers and names: one for all where there is only one."""
    first, last = int(stretch.transactions[0]), int(stretch.transactions[-1])
    if first == last:
        return first, str(first)
    numbers = pa.array(stretch.transactions)
    return numbers, numbers.cast(pa.string())
