"""What a made-up history offers: any stretch of it, without what came before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.table_schema import TableId, TableSchema

NAMESPACE = "shop"

CHUNK_ROWS = 10_000
"""Rows of one table that share a transaction, of those that are there before the first change."""


@dataclass(frozen=True, slots=True)
class GeneratedChanges:
    """Changes of one table, in order."""

    schema: TableSchema
    rows: pa.RecordBatch
    operations: pa.UInt8Array
    transactions: Int64Array
    """The number of the transaction that each change belongs to."""
    indexes: Int64Array
    """Its place in that transaction."""


class GeneratedHistory(Protocol):
    """Transactions numbered from 0, the first `opening` of which read what is there already."""

    opening: int
    schemas: Sequence[TableSchema]

    def opening_rows(self) -> dict[TableId, int]:
        """How many rows each table has before the first change."""
        ...

    def rows_before(self, transaction: int) -> int:
        """How many changes all transactions below this one have."""
        ...

    def transactions_within(self, rows: int) -> int:
        """How many whole transactions, from the first on, have no more changes than that."""
        ...

    def between(
        self, start: int, end: int, *, rows_max: int
    ) -> Iterator[Sequence[GeneratedChanges]]:
        """The changes of transactions `start` up to, and without, `end`: one piece, but for a
        single transaction of more than `rows_max` changes."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedBatch:
    """A stretch of the history that is handed over at once."""

    stretches: Sequence[GeneratedChanges]
    end: int | None
    """The transaction that comes next; None in the middle of one."""


def next_end(history: GeneratedHistory, start: int, *, rows_max: int) -> int:
    """Where a batch from `start` on ends: at least one transaction, and never both of what was
    there at first and of what changed it."""
    end = history.transactions_within(history.rows_before(start) + rows_max)
    end = max(end, start + 1)
    return min(end, history.opening) if start < history.opening else end


def pieces(
    history: GeneratedHistory, start: int, end: int, *, rows_max: int
) -> Iterator[GeneratedBatch]:
    """The changes of transactions that `next_end` has put together."""
    parts = iter(history.between(start, end, rows_max=rows_max))
    part = next(parts)
    for following in parts:
        yield GeneratedBatch(part, None)
        part = following
    yield GeneratedBatch(part, end)


def end_of(history: GeneratedHistory, rows: int) -> int:
    """The number of transactions that are needed for that many changes."""
    whole = history.transactions_within(rows)
    return whole if history.rows_before(whole) >= rows else whole + 1
