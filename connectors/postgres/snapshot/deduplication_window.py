"""Which of the rows that were read beside the stream may still be handed on, and when."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.snapshot.visibility import PgSnapshot
from headwater.connectors.snapshot.key_lookup import having_keys
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.rows.decimal_nan import declare_nan_columns

TOUCHED_BYTES_MAX = 32 << 20
"""Of keys that come by while one window is open: some millions, which takes a transaction that
changes about as many rows, or a stream that is far behind."""


@dataclass(slots=True)
class DeduplicationWindow:
    """Open from just before rows are read until they are handed on.

    The rows are the table as of the snapshot they were read under. They are handed on once the
    stream has passed everything that snapshot sees. A key that the stream brought meanwhile has a
    newer row in the log, or none: its row is left out.

    That fails for one kind of transaction: streamed before the window was opened, and yet not seen
    by the snapshot, since a server may stream a commit before it shows it. Then the rows are to be
    read again, and also when more came by meanwhile than is remembered.
    """

    earlier: Int64Array
    """Transactions that had touched the table, as far as they might not be seen."""
    snapshot: PgSnapshot | None = None
    awaits: int = -1
    """Where the stream has to be for everything the snapshot sees to have come by."""
    is_overrun: bool = False
    """More keys came by than are remembered, so that the rows are to be read again."""
    _touched: list[pa.RecordBatch] = field(default_factory=list)
    _touched_bytes: int = 0
    _form: pa.Schema | None = None

    def note_keys(self, keys: pa.RecordBatch, form: pa.Schema) -> None:
        if self.is_overrun:
            return
        self._touched.append(keys)
        self._touched_bytes += keys.nbytes
        self._form = form
        if self._touched_bytes > TOUCHED_BYTES_MAX:
            self.is_overrun = True
            self._touched.clear()

    def is_usable_under(self, snapshot: PgSnapshot, *, awaits: int) -> bool:
        self.snapshot, self.awaits = snapshot, awaits
        return bool(snapshot.sees(self.earlier).all())

    def may_close(self, lsn: int) -> bool:
        return lsn >= self.awaits

    def has_other_key(self, key: pa.Schema) -> bool:
        """Whether the stream meanwhile told rows apart by something else."""
        return any(keys.schema != key for keys in self._touched)

    def has_other_form(self, form: pa.Schema) -> bool:
        """Whether the table has been given other columns meanwhile."""
        return self._form is not None and self._form != form

    def drop_streamed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What is to be handed on of rows that were read."""
        if not self._touched:
            return rows
        [keys] = pa.Table.from_batches(self._touched).combine_chunks().to_batches()
        is_stale = having_keys(rows, keys)
        return rows.filter(pa.array(~is_stale)) if is_stale.any() else rows


@dataclass(slots=True)
class StreamedKeys:
    """Follows one table's changes in the stream for as long as its rows are being read.

    It is begun before one waits for whoever has been writing to the table. What was streamed
    earlier is seen after that, and need not be remembered: by day, or behind other tables, that
    would be every transaction of many hours.
    """

    is_on: bool = False
    streamed: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Transactions that touched the table, as far as they might not be seen."""
    _windows: list[DeduplicationWindow] = field(default_factory=list)

    def begin(self) -> None:
        self.is_on = True

    def rest(self) -> None:
        """To be begun anew before another window is opened; those that are open go on."""
        self.is_on, self.streamed = False, self.streamed[:0]

    def open(self) -> DeduplicationWindow:
        assert self.is_on, "what may not be seen is remembered before a window is opened"
        window = DeduplicationWindow(self.streamed)
        self._windows.append(window)
        return window

    def close(self, window: DeduplicationWindow) -> None:
        """What the window's snapshot sees, all later ones see as well."""
        self._windows = [each for each in self._windows if each is not window]
        if window.snapshot is not None:
            self.streamed = self.streamed[~window.snapshot.sees(self.streamed)]

    def saw(self, changes: TableChanges, xids: Int64Array) -> None:
        if self.is_on:
            self.streamed = np.union1d(self.streamed, xids)
        if not self._windows or not len(changes):
            return
        keys, form = _alone(changes.keys), declare_nan_columns(changes.schema).arrow
        for window in self._windows:
            window.note_keys(keys, form)


def _alone(keys: pa.RecordBatch) -> pa.RecordBatch:
    """The same in memory of their own: text of the stream's is a part of all that came with it."""
    everything = pa.array(np.arange(keys.num_rows))
    columns = [
        column if pa.types.is_primitive(column.type) else column.take(everything)
        for column in keys.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=keys.schema)
