"""Tables to read beside the stream, their chunks that wait, and the keys streamed meanwhile."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.settings import MysqlSnapshotSettings
from headwater.connectors.mysql.snapshot.chunk_reader import MysqlChunk
from headwater.connectors.mysql.snapshot.table_progress import MysqlTableProgress
from headwater.connectors.snapshot.reread_limits import RereadEstimate, estimate_reread
from headwater.connectors.snapshot.row_keys import having_keys, own_copy
from headwater.connectors.source import FreeSpace
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


@dataclass(slots=True, eq=False)
class ChunkInWork:
    """A chunk of a table from when a worker takes it on until the stream has passed its
    snapshot."""

    after: tuple[bytes, ...] | None
    """The key's cells of the row before it; None before the first row."""
    upto: tuple[bytes, ...] | None = None
    """Those of its last row, if they were asked for; else it has a number of rows."""
    window: StreamedWindow | None = None
    chunk: MysqlChunk | None = None
    """Its rows, once they were read."""

    @property
    def end(self) -> tuple[bytes, ...] | None:
        """Returns where the next chunk begins; None if that is not known, or if there is none."""
        if self.chunk is None:
            return self.upto
        return None if self.chunk.is_last else self.chunk.last


@dataclass(slots=True, eq=False)
class TableJob:
    """The reading of one table, in chunks that are read at the same time and emitted in turn."""

    table: MysqlTable
    progress: MysqlTableProgress
    chunks: list[ChunkInWork] = field(default_factory=list)
    """In the order of the key, from the first that is not emitted."""
    is_over: bool = False
    held: str = ""
    """The reason why a re-read waits for a person."""
    is_unreadable: bool = False
    """The server could not read its rows; it is tried again later."""
    due_ms: int = 0
    """A re-read begins not before this time."""

    @property
    def is_active(self) -> bool:
        is_ready = not self.progress.reread or self.progress.is_started
        return is_ready and not (
            self.is_over or self.held or self.is_unreadable or self.progress.is_paused
        )

    def wants_worker(self, chunks_max: int) -> bool:
        """Whether a further chunk can be read: where it begins has to be known."""
        if not self.is_active or len(self.chunks) >= chunks_max:
            return False
        return not self.chunks or self.chunks[-1].end is not None

    def next_chunk(self) -> ChunkInWork:
        after = self.chunks[-1].end if self.chunks else self.progress.last
        self.chunks.append(ChunkInWork(after))
        return self.chunks[-1]

    def drop_chunks(self) -> None:
        """Gives up what is not emitted: it is read again."""
        self.chunks.clear()


@dataclass(slots=True)
class WorkSignal:
    """Wakes whoever waits for work, and whoever waits for rows."""

    work: asyncio.Event = field(default_factory=asyncio.Event)
    rows: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Wakes both."""
        self.work.set()
        self.rows.set()


def estimate_of(
    table: MysqlTable, settings: MysqlSnapshotSettings, free: Sequence[FreeSpace]
) -> RereadEstimate:
    """Returns how much a re-read of the table would read, by the catalogue."""
    return estimate_reread(
        table.rows_estimate,
        table.bytes_estimate,
        rows_per_second=settings.max_rows_per_second,
        between=settings.between,
        free=free,
    )
