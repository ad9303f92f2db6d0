"""One poll of one table: new, changed and deleted rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from math import floor

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.source import SnapshotProgress, SourceContext
from headwater.connectors.sql.database import Database, SqlTable
from headwater.connectors.sql.settings import SqlSourceSettings
from headwater.connectors.sql.spool import PreviousRows, RowDigests, Spool, digests_of, remember
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import (
    ChangeBatch,
    ColumnOrValue,
    Operation,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId

Kinds = npt.NDArray[np.uint8]

DAY_MS = 86_400_000
WINDOW_ROWS_MAX = 2_000_000
"""Rows within the lag that are remembered; others are emitted again in the next poll."""


@dataclass(slots=True)
class PolledTable:
    """The state of a table between two polls; only `after` survives a restart."""

    after: list[str] | None = None
    """The last value of the cursor."""
    was_read: bool = False
    """Whether an earlier run, or an earlier reading of this one, has emitted its rows."""
    remembered: PreviousRows = field(default_factory=PreviousRows)
    is_read: bool = False
    """Whether it was read completely since the start."""
    is_reported: bool = False
    """Whether the end of its initial snapshot was reported."""
    compared_ms: int = 0


class PollingRounds:
    """Keeps the state of each table. Runs on the database's thread."""

    def __init__(
        self, database: Database, settings: SqlSourceSettings, context: SourceContext, version: str
    ) -> None:
        self._database, self._settings, self._context = database, settings, context
        self._version = version
        self._states: dict[str, PolledTable] = {}
        self._commit = ""

    def resume(self, table: SqlTable, stored: str | None) -> None:
        state = self._states.setdefault(part_of(table), PolledTable())
        state.was_read = stored is not None
        if stored is None or not table.cursor or self._settings.deletes == "compare":
            return
        try:
            spooled = orjson.loads(stored)
            if spooled.get("order") == list(table.order):
                state.after = [str(each) for each in spooled["after"]]
        except (ValueError, KeyError, AttributeError):
            raise DecodeError("the stored position is not one of this source") from None

    def is_known(self, table: SqlTable) -> bool:
        return part_of(table) in self._states

    def of(self, table: SqlTable) -> Iterator[ChangeBatch]:
        """Yields the batches of one poll. Batches without a position belong to the next one that
        has one."""
        state = self._states[part_of(table)]
        self._commit = str(self._context.clock.now_ms())
        if table.cursor and (state.is_read or self._settings.deletes == "none"):
            yield from self._newer(table, state)
            if self._settings.deletes == "compare" and self._is_due(state):
                yield from self._compare(table, state)
        else:
            yield from self._whole(table, state)

    def again(self, table: SqlTable) -> None:
        """Makes the next poll read the table from its beginning."""
        self._states[part_of(table)] = PolledTable(was_read=True)

    def _is_due(self, state: PolledTable) -> bool:
        due_ms = state.compared_ms + self._settings.compare_every_ms
        return self._context.clock.monotonic_ms() >= due_ms

    def _newer(self, table: SqlTable, state: PolledTable) -> Iterator[ChangeBatch]:
        """Yields rows after the cursor, and changed rows within the lag."""
        is_first = state.after is None
        bound = None if state.after is None else self._lower_bound(table, state.after[0])
        after = state.after if bound is None else None
        keys, rows = list[RowDigests](), list[RowDigests]()
        key_values = list[pa.RecordBatch]()
        count = 0
        while True:
            page, end = self._database.page(table, after=after, at_least=bound)
            if end is None:
                break
            fresh, page_keys, page_rows = self._differing(table, state.remembered, page)
            keys.append(page_keys)
            rows.append(page_rows)
            key_values += self._keys_of_page(table, page)
            count += page.num_rows
            after = state.after = end
            if fresh.num_rows:
                operations = self._operations(table, state, fresh, is_first=is_first)
                yield self._batch(table, fresh, operations, state)
            if is_first:
                self._context.report(SnapshotProgress(table.id, count))
            if page.num_rows < self._settings.batch_rows:
                break
        if not state.is_reported:  # rows that an earlier run has read are not counted
            state.is_reported = True
            self._context.report(SnapshotProgress(table.id, count if is_first else 0, is_done=True))
        if self._settings.deletes == "compare":
            self._learn(state, keys, rows, key_values)
        elif self._has_lag and sum(map(len, keys)) <= WINDOW_ROWS_MAX:
            state.remembered = remember(keys, rows, [])
        else:
            state.remembered = PreviousRows()

    def _whole(self, table: SqlTable, state: PolledTable) -> Iterator[ChangeBatch]:
        """Yields all rows; after the first time only changed ones. A start that must find deletes
        truncates the table once everything that replaces it has been read."""
        is_first = not state.is_read
        empties = is_first and self._settings.deletes == "compare" and bool(table.schema.key)
        keys, rows = list[RowDigests](), list[RowDigests]()
        key_values, after, count = list[pa.RecordBatch](), None, 0
        with Spool() as spool:
            while True:
                page, end = self._database.page(table, after=after)
                fresh, page_keys, page_rows = self._differing(table, state.remembered, page)
                keys.append(page_keys)
                rows.append(page_rows)
                key_values += self._keys_of_page(table, page)
                count += page.num_rows
                after = end
                is_last = end is None or not table.order
                is_last = is_last or page.num_rows < self._settings.batch_rows
                if fresh.num_rows and empties:
                    spool.add(fresh)
                elif fresh.num_rows:
                    yield self._unfinished_batch(table, fresh, state, is_first=is_first)
                self._context.report(SnapshotProgress(table.id, count, is_done=is_last))
                if is_last:
                    break
                state.after = end
            if empties:
                state.was_read = False  # the log has none of its rows any more
                yield self._truncate(table)
                for fresh in spool.batches():
                    yield self._unfinished_batch(table, fresh, state, is_first=True)
        gone = self._find_gone(table, state, keys, is_first=is_first)
        state.after = after or state.after
        state.remembered = remember(keys, rows, key_values)
        state.is_read, state.compared_ms = True, self._context.clock.monotonic_ms()
        yield from gone
        yield ChangeBatch((), {part_of(table): self._position(table, state)})

    def _unfinished_batch(
        self, table: SqlTable, rows: pa.RecordBatch, state: PolledTable, *, is_first: bool
    ) -> ChangeBatch:
        operations = self._operations(table, state, rows, is_first=is_first)
        return self._batch(table, rows, operations, state, has_position=False)

    def broken_off(self, table: SqlTable) -> ChangeBatch:
        """Ends the batch of a table whose poll failed: the emitted rows are correct, and come again
        with the next poll."""
        state = self._states[part_of(table)]
        state.was_read = True
        return ChangeBatch((), {part_of(table): self._position(table, state)})

    def _compare(self, table: SqlTable, state: PolledTable) -> Iterator[ChangeBatch]:
        """Compares all keys; rows whose key no longer exists were deleted."""
        keys, after = list[RowDigests](), None
        while True:
            names = dict.fromkeys((*table.order, *table.schema.key))
            page, end = self._database.page(table, after=after, columns=tuple(names))
            keys.append(digests_of(page.select(list(table.schema.key))))
            after = end
            if end is None or page.num_rows < self._settings.batch_rows:
                break
        state.compared_ms = self._context.clock.monotonic_ms()
        yield from self._find_gone(table, state, keys, is_first=False)
        there = np.isin(state.remembered.keys, np.concatenate(keys))
        spooled = state.remembered
        assert spooled.key_values is not None, "keys are kept where deletes are looked for"
        values = spooled.key_values.filter(pa.array(there))
        state.remembered = PreviousRows(spooled.keys[there], spooled.rows[there], values)

    def _find_gone(
        self, table: SqlTable, state: PolledTable, keys: list[RowDigests], *, is_first: bool
    ) -> list[ChangeBatch]:
        if self._settings.deletes == "none" or is_first or state.remembered.key_values is None:
            return []
        gone = state.remembered.find_gone(np.concatenate(keys))
        if not gone.num_rows:
            return []
        columns = [
            gone.column(column.name)
            if column.name in table.schema.key
            else pa.nulls(gone.num_rows, column.type)
            for column in table.schema.columns
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=table.schema.arrow)
        operations = np.full(gone.num_rows, Operation.DELETE, dtype=np.uint8)
        return [self._batch(table, rows, operations, state)]

    def _differing(
        self, table: SqlTable, spooled: PreviousRows, page: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, RowDigests, RowDigests]:
        """Returns the changed rows of a page, and the digests of all of its rows."""
        key = table.schema.key or table.schema.names
        keys, rows = digests_of(page.select(list(key))), digests_of(page)
        if not len(spooled):
            return page, keys, rows
        _, is_same = spooled.find_known(keys, rows)
        return page.filter(pa.array(~is_same)), keys, rows

    def _operations(
        self, table: SqlTable, state: PolledTable, rows: pa.RecordBatch, *, is_first: bool
    ) -> Kinds:
        """Returns the operations. If not every key is remembered, a row after the cursor may be new
        or not: an update means both."""
        if is_first:
            return np.full(rows.num_rows, Operation.READ, dtype=np.uint8)
        if not state.is_read:
            return np.full(rows.num_rows, Operation.UPDATE, dtype=np.uint8)
        key = table.schema.key or table.schema.names
        digests = digests_of(rows.select(list(key)))
        was_there, _ = state.remembered.find_known(digests, digests)
        return np.where(was_there, Operation.UPDATE, Operation.INSERT).astype(np.uint8)

    def _keys_of_page(self, table: SqlTable, page: pa.RecordBatch) -> list[pa.RecordBatch]:
        if self._settings.deletes == "none" or not table.schema.key:
            return []
        return [page.select(list(table.schema.key))]

    def _learn(
        self,
        state: PolledTable,
        keys: list[RowDigests],
        rows: list[RowDigests],
        key_values: list[pa.RecordBatch],
    ) -> None:
        """Adds rows to the digests of the whole table."""
        spooled = state.remembered
        if spooled.key_values is not None:
            keys, rows = [spooled.keys, *keys], [spooled.rows, *rows]
            key_values = [spooled.key_values, *key_values]
        state.remembered = remember(keys, rows, key_values)

    @property
    def _has_lag(self) -> bool:
        return bool(self._settings.lag_ms or self._settings.lag_count)

    def _lower_bound(self, table: SqlTable, newest: str) -> str | None:
        """Returns the lower bound from which the cursor is read again; None without a lag."""
        kind = table.schema.column(table.cursor[0]).type
        if pa.types.is_timestamp(kind) and self._settings.lag_ms:
            naive = pa.scalar(newest.replace("T", " ")[:26]).cast(pa.timestamp("us"))
            back = pc.subtract(naive, pa.scalar(self._settings.lag_ms * 1_000, pa.duration("us")))
            # Whole seconds sort, also as text, before all times that follow them.
            text = str(pc.floor_temporal(back, unit="second").cast(pa.timestamp("s")))
            return text if "T" not in newest else text.replace(" ", "T")
        if pa.types.is_date(kind) and self._settings.lag_ms:
            days = -(-self._settings.lag_ms // DAY_MS)
            return str(date.fromisoformat(newest[:10]) - timedelta(days=days))
        if (pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and self._settings.lag_count:
            return str(floor(Decimal(newest)) - self._settings.lag_count)
        return None

    def _truncate(self, table: SqlTable) -> ChangeBatch:
        rows = pa.RecordBatch.from_arrays(
            [pa.nulls(1, column.type) for column in table.schema.columns],
            schema=table.schema.arrow,
        )
        operations = np.array([Operation.TRUNCATE], dtype=np.uint8)
        return self._batch(table, rows, operations, PolledTable(), has_position=False)

    def _batch(
        self,
        table: SqlTable,
        rows: pa.RecordBatch,
        operations: Kinds,
        state: PolledTable,
        *,
        has_position: bool = True,
    ) -> ChangeBatch:
        kinds = pa.array(operations, pa.uint8())
        source: dict[str, ColumnOrValue] = {
            "version": self._version,
            "connector": "sql",
            "name": self._context.pipeline,
            **source_times(self._context.clock.now_ms() * 1_000),
            "snapshot": _snapshot_of(table, operations, state),
            "db": str(self._database.engine.url.database or ""),
            "sequence": None,
            "schema": table.id.namespace,
            "table": table.id.name,
        }
        changes = TableChanges(table.schema, rows, kinds, source, commits=self._commit)
        positions = {part_of(table): self._position(table, state)} if has_position else {}
        return ChangeBatch((changes,), positions)

    def _position(self, table: SqlTable, state: PolledTable) -> str:
        if not table.cursor or state.after is None:
            return orjson.dumps({"read": self._commit}).decode()
        return orjson.dumps({"order": table.order, "after": state.after}).decode()


def _snapshot_of(table: SqlTable, operations: Kinds, state: PolledTable) -> str:
    """Returns the field of the `source` block. The log may have former versions of rows that are
    read again: a filter has to know, and histories are not told what has not changed."""
    if operations[0] != Operation.READ:
        return "false"
    return "incremental" if state.was_read and table.schema.key else "true"


def part_of(table: SqlTable) -> str:
    return part_named(table.id)


def part_named(table: TableId) -> str:
    return f"table/{table}"
