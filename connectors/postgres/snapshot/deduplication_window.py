"""Decides which snapshot rows, read beside the stream, may still be emitted, and when: by their
keys, or in a table without a key by holding the changes back."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.connectors.snapshot.row_keys import having_keys, own_copy
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.rows.schema_text import declare_nan_columns

TOUCHED_BYTES_MAX = 32 << 20
"""Limit of the bytes of streamed keys during one window: some millions of keys. It takes a
transaction of about as many rows, or a stream that is far behind."""
HELD_BYTES_MAX, CHANGE_BYTES = 64 << 20, 32
"""Limit of the buffered changes, and approximate size of each beside its row."""


@dataclass(slots=True)
class DeduplicationWindow:
    """A window that is open from just before rows are read until they are emitted.

    The rows are the table as of their snapshot. They are emitted once the stream has passed
    everything that the snapshot sees. A row whose key was streamed meanwhile is left out: the log
    has a newer row or a delete.

    That fails for a transaction that was streamed before the window, but is not seen by the
    snapshot, since a server may stream a commit before it shows it. Then the rows are read again,
    and also after more streamed keys than the limit.
    """

    earlier: Int64Array
    """Earlier transactions that touched the table and might not be seen."""
    snapshot: PgSnapshot | None = None
    is_overrun: bool = False
    """More keys than the limit were streamed, so the rows must be read again."""
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

    def is_usable_under(self, snapshot: PgSnapshot) -> bool:
        self.snapshot = snapshot
        return bool(snapshot.sees(self.earlier).all())

    def has_other_key(self, key: pa.Schema) -> bool:
        """Whether the table's key in the stream has changed meanwhile."""
        return any(keys.schema != key for keys in self._touched)

    def has_other_form(self, form: pa.Schema) -> bool:
        """Whether the table's columns have changed meanwhile."""
        return self._form is not None and self._form != form

    def drop_streamed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows without those whose keys were streamed."""
        if not self._touched:
            return rows
        [keys] = pa.Table.from_batches(self._touched).combine_chunks().to_batches()
        is_stale = having_keys(rows, keys)
        return rows.filter(pa.array(~is_stale)) if is_stale.any() else rows


@dataclass(slots=True)
class StreamedKeys:
    """Follows one table's streamed changes while its rows are read.

    It begins before the wait for running writing transactions. Earlier changes are seen after that
    wait and need not be remembered: they could be the transactions of many hours.
    """

    is_on: bool = False
    streamed: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Transactions that touched the table and might not be seen."""
    _windows: list[DeduplicationWindow] = field(default_factory=list)

    def begin(self) -> None:
        self.is_on = True

    def rest(self) -> None:
        """Forgets; it must begin again before another window. Open windows go on."""
        self.is_on, self.streamed = False, self.streamed[:0]

    def open(self) -> DeduplicationWindow:
        assert self.is_on, "what may not be seen is remembered before a window is opened"
        window = DeduplicationWindow(self.streamed)
        self._windows.append(window)
        return window

    def close(self, window: DeduplicationWindow) -> None:
        """Closes a window: all later snapshots see what its snapshot sees."""
        self._windows = [each for each in self._windows if each is not window]
        if window.snapshot is not None:
            self.streamed = self.streamed[~window.snapshot.sees(self.streamed)]

    def saw(self, changes: TableChanges, xids: Int64Array) -> None:
        if self.is_on:
            self.streamed = np.union1d(self.streamed, xids)
        if not self._windows or not len(changes):
            return
        keys, form = own_copy(changes.keys), declare_nan_columns(changes.schema).arrow
        for window in self._windows:
            window.note_keys(keys, form)


@dataclass(slots=True)
class KeylessBuffer:
    """A buffer of changes. Rows without a key cannot be matched with the stream. So the table is
    truncated in the log, filled with the rows of one snapshot, and then gets the changes that
    the snapshot does not see. If the buffer is full, the snapshot starts again."""

    earlier: Int64Array
    """Earlier transactions that touched the table and might not be seen."""
    is_overrun: bool = False
    _changes: list[tuple[TableChanges, Int64Array]] = field(default_factory=list)
    _bytes: int = 0

    def saw(self, changes: TableChanges, xids: Int64Array) -> None:
        self._changes.append((changes, xids))
        self._bytes += changes.rows.nbytes + CHANGE_BYTES * len(changes)
        self.is_overrun = self._bytes > HELD_BYTES_MAX

    def can_be_read_under(self, snapshot: PgSnapshot) -> bool:
        return bool(snapshot.sees(self.earlier).all())

    def later(self, snapshot: PgSnapshot) -> list[TableChanges]:
        """Returns the changes that the snapshot does not see, in order."""
        found = []
        for changes, xids in self._changes:
            kept = changes.filter(pa.array(~snapshot.sees(xids)))
            if len(kept):
                found.append(kept)
        return found

    def given_back(self) -> list[TableChanges]:
        """Returns all changes of a snapshot that was given up."""
        found, self._changes = [changes for changes, _ in self._changes], []
        return found
