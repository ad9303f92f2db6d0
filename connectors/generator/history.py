"""A generated history: any range of it can be made without the part before."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.source import SourceSnapshot
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import ColumnOrValue, Operation, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

NAMESPACE = "shop"

CHUNK_ROWS = 10_000
"""Rows of one table that share a transaction in the initial snapshot."""


@dataclass(frozen=True, slots=True)
class GeneratedChanges:
    schema: TableSchema
    rows: pa.RecordBatch
    operations: pa.UInt8Array
    transactions: Int64Array
    """The number of each change's transaction."""
    indexes: Int64Array
    """The index of each change in its transaction."""


class GeneratedHistory(Protocol):
    """Transactions numbered from 0; the first `opening` of them read the initial rows."""

    opening: int
    schemas: Sequence[TableSchema]

    def opening_rows(self) -> dict[TableId, int]: ...

    def rows_before(self, transaction: int) -> int: ...

    def transactions_within(self, rows: int) -> int:
        """Returns how many whole transactions, from the first on, have at most that many
        changes."""
        ...

    def between(
        self, start: int, end: int, *, rows_max: int
    ) -> Iterator[Sequence[GeneratedChanges]]:
        """Yields the changes of transactions `start` to `end`, exclusive: one part, unless a single
        transaction has more than `rows_max` changes."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedBatch:
    """A range of the history that is emitted at once."""

    parts: Sequence[GeneratedChanges]
    end: int | None
    """The next transaction; None in the middle of one."""


def next_end(history: GeneratedHistory, start: int, *, rows_max: int) -> int:
    """Returns where a batch from `start` on ends: after at least one transaction, and never with
    initial rows and changes together."""
    end = history.transactions_within(history.rows_before(start) + rows_max)
    end = max(end, start + 1)
    return min(end, history.opening) if start < history.opening else end


def generated_batches(
    history: GeneratedHistory, start: int, end: int, *, rows_max: int
) -> Iterator[GeneratedBatch]:
    """Yields the changes of the transactions that `next_end` has put together."""
    parts = iter(history.between(start, end, rows_max=rows_max))
    part = next(parts)
    for following in parts:
        yield GeneratedBatch(part, None)
        part = following
    yield GeneratedBatch(part, end)


def end_of(history: GeneratedHistory, rows: int) -> int:
    """Returns the number of transactions that are needed for that many changes."""
    whole = history.transactions_within(rows)
    return whole if history.rows_before(whole) >= rows else whole + 1


PAGE_ROWS = 50_000


def snapshot_at(
    transaction: int,
    settings: GeneratorSettings,
    schemas: list[TableSchema],
    positions: Positions,
    source: Callable[[TableId], dict[str, ColumnOrValue]],
) -> SourceSnapshot:
    """Returns the snapshot after all transactions below this one; it is made at the first use."""
    made: dict[TableId, pa.Table] = {}

    async def rows(table: TableId) -> AsyncIterator[TableChanges]:
        if not made:
            made.update(truth(settings, transaction))
        schema = next(each for each in schemas if each.table == table)
        for batch in made[table].combine_chunks().to_batches(max_chunksize=PAGE_ROWS):
            kinds = np.full(batch.num_rows, Operation.READ, np.uint8)
            yield TableChanges(schema, batch, pa.array(kinds), source(table))

    return SourceSnapshot(positions, rows)


FOLD_ROWS = 2_000_000
"""Changes of one table that are kept before they are reduced to the newest of each key."""
OPERATION, ORDER = "__operation", "__order"


def truth(settings: GeneratorSettings, up_to: int | None = None) -> Mapping[TableId, pa.Table]:
    """Returns the rows of every table in key order, after the transactions below `up_to`; without
    it after all of them, if the history ends."""
    history = history_of(settings)
    if settings.total is not None:
        end = end_of(history, settings.total)
        up_to = end if up_to is None else min(up_to, end)
    assert up_to is not None, "a history without an end has no final state"
    states = {schema.table: _State(schema.key) for schema in history.schemas}
    at = 0
    while at < up_to:
        end = min(next_end(history, at, rows_max=settings.batch_rows), up_to)
        for generated in generated_batches(history, at, end, rows_max=settings.batch_rows):
            for part in generated.parts:
                states[part.schema.table].add(part)
        at = end
    return {schema.table: states[schema.table].rows(schema.arrow) for schema in history.schemas}


class _State:
    """The newest change of each key so far, and the changes since."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = list(key)
        self._parts: list[pa.Table] = []
        self._waiting = 0

    def add(self, part: GeneratedChanges) -> None:
        table = pa.Table.from_batches([part.rows])
        self._parts.append(table.append_column(OPERATION, part.operations))
        self._waiting += table.num_rows
        if self._waiting > FOLD_ROWS:
            self._parts, self._waiting = [self._fold()], 0

    def rows(self, schema: pa.Schema) -> pa.Table:
        if not self._parts:
            return schema.empty_table()
        return (
            self._fold().sort_by([(name, "ascending") for name in self._key]).select(schema.names)
        )

    def _fold(self) -> pa.Table:
        changes = pa.concat_tables(self._parts)
        order = pa.array(np.arange(changes.num_rows))
        keys = changes.select(self._key).append_column(ORDER, order)
        newest = keys.group_by(self._key).aggregate([(ORDER, "max")])[f"{ORDER}_max"]
        rows_left = changes.take(newest)
        return rows_left.filter(pc.not_equal(rows_left[OPERATION], int(Operation.DELETE)))


def history_of(settings: GeneratorSettings) -> GeneratedHistory:
    from headwater.connectors.generator.shop import Shop
    from headwater.connectors.generator.wide import Wide

    if settings.mode == "shop":
        return Shop(seed=settings.seed, size=settings.size)
    return Wide(
        seed=settings.seed,
        size=settings.size,
        transaction_rows=settings.transaction_rows,
        updates=settings.updates,
        deletes=settings.deletes,
        batch_rows=settings.batch_rows,
    )


def name_of(settings: GeneratorSettings) -> str:
    """Returns a name that contains everything on which the rows of a history depend."""
    parts = [settings.mode, f"seed={settings.seed}", f"size={settings.size}"]
    if settings.mode == "wide":
        parts += [f"transaction_rows={settings.transaction_rows}"]
        parts += [f"updates={settings.updates}", f"deletes={settings.deletes}"]
    return " ".join(parts)
