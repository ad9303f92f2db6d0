"""The keys of a table that were streamed while a chunk of its rows was read."""

from dataclasses import dataclass, field

import pyarrow as pa

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.snapshot.row_keys import having_keys, own_copy
from headwater.core_log.model.changes import TableChanges

KEYS_BYTES_MAX = 32 << 20


@dataclass(slots=True)
class StreamedWindow:
    """Open from before the rows are read until they are emitted: a row whose key was streamed
    meanwhile is left out, because the log has a newer row or a delete."""

    opened_at: BinlogPosition
    """The stream's position, all of which the rows must show."""
    is_overrun: bool = False
    """The rows must be read again: too many keys, a truncate, or another form."""
    _keys: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0

    def saw(self, changes: TableChanges) -> None:
        if self.is_overrun:
            return
        if changes.is_truncate:
            self.overrun()
            return
        keys = own_copy(changes.keys)
        self._keys.append(keys)
        self._bytes += keys.nbytes
        if self._bytes > KEYS_BYTES_MAX:
            self.overrun()

    def overrun(self) -> None:
        self.is_overrun = True
        self._keys.clear()

    def drop_streamed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._keys:
            return rows
        [keys] = pa.Table.from_batches(self._keys).combine_chunks().to_batches()
        is_stale = having_keys(rows, keys)
        return rows.filter(pa.array(~is_stale)) if is_stale.any() else rows
