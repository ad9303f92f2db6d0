"""Which rows are there before the first change, and in which transactions they are read."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headwater.connectors.generator.history import CHUNK_ROWS
from headwater.core_log.foundation.array_types import Int64Array


class InitialRows(NamedTuple):
    """Rows `first` to `end` of table number `table`, and the transactions that read them."""

    table: int
    first: int
    end: int
    transactions: Int64Array
    indexes: Int64Array


class InitialTables:
    """Tables one after the other, each in chunks; a chunk is a transaction."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        chunks = [
            min(CHUNK_ROWS, count - first)
            for count in counts
            for first in range(0, count, CHUNK_ROWS)
        ]
        self._before = np.append(0, np.cumsum(np.array(chunks, dtype=np.int64)))
        self._table_chunks = [-(-count // CHUNK_ROWS) for count in counts]

    @property
    def transactions(self) -> int:
        return len(self._before) - 1

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def rows_before(self, transaction: int) -> int:
        return int(self._before[transaction])

    def transactions_within(self, rows: int) -> int:
        return int(np.searchsorted(self._before, rows, side="right")) - 1

    def readings(self, start: int, end: int) -> Iterator[InitialRows]:
        """Of transactions `start` up to, and without, `end`."""
        chunk = 0  # number of the table's first
        for table, (count, chunks) in enumerate(zip(self.counts, self._table_chunks, strict=True)):
            first, last = max(start, chunk), min(end, chunk + chunks)
            if first < last:
                rows = np.arange(
                    (first - chunk) * CHUNK_ROWS, min((last - chunk) * CHUNK_ROWS, count)
                )
                yield InitialRows(
                    table,
                    int(rows[0]),
                    int(rows[-1]) + 1,
                    chunk + rows // CHUNK_ROWS,
                    rows % CHUNK_ROWS,
                )
            chunk += chunks
