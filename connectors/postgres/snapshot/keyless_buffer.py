"""Buffers the changes of a table without a key while the table is read as a whole."""

from dataclasses import dataclass, field

import pyarrow as pa

from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import TableChanges

HELD_BYTES_MAX, CHANGE_BYTES = 64 << 20, 32
"""Limit of the buffered changes, and approximate size of each beside its row."""


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
