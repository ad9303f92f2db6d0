"""A generated history: any range of it can be made without the part before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.table_schema import TableId, TableSchema

NAMESPACE = "shop"

CHUNK_ROWS = 10_000
"""Rows of one table that share a transaction in the initial snapshot."""


@dataclass(frozen=True, slots=True)
class GeneratedChanges:
    """Changes of one table, in order."""

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

    def opening_rows(self) -> dict[TableId, int]:
        """Returns the initial number of rows of each table."""
        ...

    def rows_before(self, transaction: int) -> int:
        """Returns the number of changes in all transactions below this one."""
        ...

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

    stretches: Sequence[GeneratedChanges]
    end: int | None
    """The next transaction; None in the middle of one."""


def next_end(history: GeneratedHistory, start: int, *, rows_max: int) -> int:
    """Returns where a batch from `start` on ends: after at least one transaction, and never with
    initial rows and changes together."""
    end = history.transactions_within(history.rows_before(start) + rows_max)
    end = max(end, start + 1)
    return min(end, history.opening) if start < history.opening else end


def pieces(
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
