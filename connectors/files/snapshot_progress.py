"""How much of what was there at the start has been read."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headwater.connectors.source import SnapshotProgress
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId


class FileSnapshotProgress:
    """Counts during the first look at the files; what comes later is no progress but news."""

    def __init__(self) -> None:
        self._tables: dict[TableId, SnapshotProgress] | None = None
        self._has_ended = False
        self._news: set[TableId] = set()

    def begin(self, expected: Mapping[str, int | None]) -> None:
        if self._tables is None:
            tables = [(TableId("", name), left) for name, left in expected.items()]
            self._tables = {
                table: SnapshotProgress(table, 0, None, 0, left) for table, left in tables
            }

    def add(self, changes: TableChanges, bytes_read: int) -> None:
        table = changes.schema.table
        if self._has_ended or self._tables is None:
            return
        so_far = self._tables.get(table, SnapshotProgress(table, 0, None, 0))
        self._tables[table] = replace(
            so_far, rows=so_far.rows + len(changes), bytes=(so_far.bytes or 0) + bytes_read
        )
        self._news.add(table)

    def end(self) -> None:
        if not self._has_ended and self._tables is not None:
            self._has_ended, self._news = True, set(self._tables)
            self._tables = {
                table: replace(each, is_done=True) for table, each in self._tables.items()
            }

    def news(self) -> Iterable[SnapshotProgress]:
        """What has changed since the last time."""
        news, self._news = self._news, set()
        return [(self._tables or {})[table] for table in sorted(news)]
