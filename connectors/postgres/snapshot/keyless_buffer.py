"""A table without a key while it is read as a whole: its changes wait until its rows are there."""

from dataclasses import dataclass, field

import pyarrow as pa

from headwater.connectors.postgres.snapshot.visibility import PgSnapshot
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import TableChanges

HELD_BYTES_MAX, CHANGE_BYTES = 64 << 20, 32
"""Of changes that wait, and about what each takes beside its row."""


@dataclass(slots=True)
class KeylessBuffer:
    """Rows without a key cannot be told from what the stream brings meanwhile. So the log's table
    is emptied, filled with the rows that one snapshot sees, and gets after them those changes
    that it does not see. Where more comes than is held, the reading is given up, to begin anew."""

    earlier: Int64Array
    """Transactions that had touched the table, as far as they might not be seen."""
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
        """Those that the snapshot does not see, in order."""
        found = []
        for changes, xids in self._changes:
            kept = changes.filter(pa.array(~snapshot.sees(xids)))
            if len(kept):
                found.append(kept)
        return found

    def given_back(self) -> list[TableChanges]:
        """Everything, where nothing came of the reading."""
        found, self._changes = [changes for changes, _ in self._changes], []
        return found
