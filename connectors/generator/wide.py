"""One table of ten columns for load: columns are slices of pools that are made once."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.generator.chance import (
    CITIES,
    NAMES,
    STATUSES,
    InitialTables,
    RandomColumns,
    decimals,
    times,
    without_what_went,
)
from headwater.connectors.generator.history import CHUNK_ROWS, NAMESPACE, GeneratedChanges
from headwater.connectors.generator.settings import EPOCH_ROWS
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

WIDE = TableSchema(
    TableId(NAMESPACE, "wide"),
    (
        Column("id", pa.int64(), is_nullable=False),
        Column("name", pa.string(), is_nullable=False),
        Column("email", pa.string(), is_nullable=False),
        Column("city", pa.string(), is_nullable=False),
        Column("status", pa.string(), is_nullable=False),
        Column("amount", pa.decimal128(12, 2), is_nullable=False),
        Column("quantity", pa.int32(), is_nullable=False),
        Column("rating", pa.float64(), is_nullable=False),
        Column("is_active", pa.bool_(), is_nullable=False),
        Column("updated_at", pa.timestamp("us"), is_nullable=False),
    ),
    ("id",),
)
PERIODS = (65_537, 65_539, 65_543, 65_551, 65_557, 65_563, 65_579, 65_581, 65_587)
"""Periods of the columns after the key: a column's value in the n-th change is a function of n
modulo its period, so that a slice copies nothing."""
START_US = 1_767_225_600_000_000  # 2026-01-01
INSERT, UPDATE, DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE


class Wide:
    """Rows are inserted with ascending ids, the oldest are deleted first, and updates hit any row
    in between. Every thousand changes have the same mix in the same order."""

    def __init__(
        self,
        *,
        seed: int,
        size: int,
        transaction_rows: int,
        updates: float,
        deletes: float,
        batch_rows: int,
    ) -> None:
        self._chance, self._size = RandomColumns(seed), size
        self._transaction_rows = transaction_rows
        self._operations = self._mix(round(updates * EPOCH_ROWS), round(deletes * EPOCH_ROWS))
        self._opening = InitialTables((size,))
        self.opening = self._opening.transactions
        self.schemas: Sequence[TableSchema] = (WIDE,)
        self._pools = pools_of(seed, max(batch_rows, CHUNK_ROWS))

    def opening_rows(self) -> dict[TableId, int]:
        return {WIDE.table: self._size}

    def rows_before(self, transaction: int) -> int:
        if transaction <= self.opening:
            return self._opening.rows_before(transaction)
        return self._size + (transaction - self.opening) * self._transaction_rows

    def transactions_within(self, rows: int) -> int:
        if rows < self._size:
            return self._opening.transactions_within(rows)
        return self.opening + (rows - self._size) // self._transaction_rows

    def between(
        self, start: int, end: int, *, rows_max: int
    ) -> Iterator[Sequence[GeneratedChanges]]:
        for reading in self._opening.readings(start, min(end, self.opening)):
            numbers = np.arange(reading.first, reading.end)
            codes = np.full(len(numbers), Operation.READ, dtype=np.uint8)
            yield [
                GeneratedChanges(
                    WIDE,
                    self._rows(numbers + 1, reading.first),
                    pa.array(codes),
                    reading.transactions,
                    reading.indexes,
                )
            ]
        first = (max(start, self.opening) - self.opening) * self._transaction_rows
        last = (end - self.opening) * self._transaction_rows
        for chunk_start in range(first, last, rows_max):
            yield [self._changes(chunk_start, min(chunk_start + rows_max, last))]

    def _changes(self, first: int, last: int) -> GeneratedChanges:
        """Returns the changes from `first` to `last`, exclusive, counted from 0 after the initial
        rows."""
        epochs = np.arange(first // EPOCH_ROWS, -(-last // EPOCH_ROWS))
        cut = slice(first - int(epochs[0]) * EPOCH_ROWS, last - int(epochs[0]) * EPOCH_ROWS)
        codes = np.tile(self._operations, len(epochs))[cut]
        ids = self._ids(epochs)[cut]
        quotients, numbers = np.divmod(np.arange(first, last), self._transaction_rows)
        rows = self._rows(ids, self._size + first)
        return GeneratedChanges(
            WIDE,
            without_what_went(WIDE, rows, codes),
            pa.array(codes),
            quotients + self.opening,
            numbers,
        )

    def _ids(self, epochs: Int64Array) -> Int64Array:
        """Epoch `e` inserts above all existing ids, deletes the oldest, and updates rows that exist
        before and after it."""
        epoch = epochs[:, None]
        inserting, updating, deleting = (
            np.flatnonzero(self._operations == code) for code in (INSERT, UPDATE, DELETE)
        )
        ids = np.empty((len(epochs), EPOCH_ROWS), dtype=np.int64)
        newest = self._size + epoch * len(inserting)
        oldest = (epoch + 1) * len(deleting)  # the rows that outlive it, minus one
        ids[:, inserting] = newest + np.arange(1, len(inserting) + 1)
        ids[:, deleting] = epoch * len(deleting) + np.arange(1, len(deleting) + 1)
        quotients = epoch * EPOCH_ROWS + updating
        ids[:, updating] = (
            oldest + 1 + self._chance.numbers("updated", quotients, below=newest - oldest)
        )
        return ids.ravel()

    def _rows(self, ids: Int64Array, first: int) -> pa.RecordBatch:
        columns = [
            pool.slice(first % period, len(ids))
            for pool, period in zip(self._pools, PERIODS, strict=True)
        ]
        return pa.RecordBatch.from_arrays([pa.array(ids), *columns], schema=WIDE.arrow)

    def _mix(self, updates: int, deletes: int) -> npt.NDArray[np.uint8]:
        inserts = EPOCH_ROWS - updates - deletes
        codes = np.repeat(
            np.array([INSERT, UPDATE, DELETE], dtype=np.uint8), [inserts, updates, deletes]
        )
        order = self._chance.numbers("order", np.arange(EPOCH_ROWS), below=1 << 40)
        return codes[np.argsort(order, kind="stable")]


@lru_cache(maxsize=1)
def pools_of(seed: int, longest: int) -> list[pa.Array]:
    """Returns the pools. Each one is longer than its period by the longest slice, so that no slice
    wraps around."""
    return [
        pa.concat_arrays([_pool(RandomColumns(seed), number, period)] * (2 + longest // period))
        for number, period in enumerate(PERIODS)
    ]


def _pool(chance: RandomColumns, number: int, period: int) -> pa.Array:
    at = np.arange(period)
    drawn = chance.numbers(f"wide {number}", at, below=1 << 31)
    match number:
        case 0:
            return NAMES.take(pa.array(drawn % len(NAMES)))
        case 1:
            numbers = pa.array(drawn).cast(pa.string())
            return pc.binary_join_element_wise("user", numbers, "@shop.example", "")
        case 2:
            return CITIES.take(pa.array(drawn % len(CITIES)))
        case 3:
            return STATUSES.take(pa.array(drawn % len(STATUSES)))
        case 4:
            return decimals(drawn % 100_000_000, precision=12, scale=2)
        case 5:
            return pa.array((drawn % 1_000).astype(np.int32))
        case 6:
            return pa.array(drawn % 10_000 / 1_000)
        case 7:
            return pa.array(drawn % 10 > 0)
    return times(START_US + at * 1_000_000 + drawn % 1_000_000)
