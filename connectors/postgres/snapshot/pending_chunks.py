"""Chunks that were read beside the stream and wait until the stream has passed their snapshot."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.snapshot.deduplication_window import DeduplicationWindow
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob
from headwater.connectors.postgres.snapshot.progress import Chunk
from headwater.connectors.postgres.snapshot.transaction import SnapshotTransaction
from headwater.connectors.source import SnapshotProgress
from headwater.core_log.model.changes import ChangeBatch, Replacement, TableChanges
from headwater.core_log.model.table_schema import TableSchema

CHUNKS_AHEAD = 2
"""Chunks that were read and not emitted yet, in addition to one per connection."""


@dataclass(slots=True, eq=False)
class PendingChunk:
    """A chunk in memory."""

    job: SnapshotJob
    chunk: Chunk
    table: CapturedTable
    window: DeduplicationWindow
    view: SnapshotTransaction
    rows: list[pa.RecordBatch]


@dataclass(slots=True, eq=False)
class WholeTable:
    """A table without a key, in the transaction that will read it."""

    job: SnapshotJob
    view: SnapshotTransaction
    batches: AsyncGenerator[ChangeBatch, None]
    is_replacement: bool
    """The log has rows of it, which the new rows replace."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class PendingChunks:
    """A limited number of chunks in memory; readers wait for room."""

    def __init__(self, report: Callable[[SnapshotProgress], None], *, connections: int) -> None:
        self._report = report
        self._room = asyncio.Semaphore(CHUNKS_AHEAD + connections)
        self._waiting: list[PendingChunk | WholeTable] = []
        self._stir = asyncio.Event()
        self.whole: WholeTable | None = None
        """The table that is being emitted as a whole."""
        self.notes: dict[str, str] = {}
        """Parts of the position to store."""
        self.returned: list[TableChanges] = []
        """Buffered changes to emit."""
        self.replacements: list[Replacement] = []
        """Tables that are to be re-read."""
        self.replaced: list[TableSchema] = []
        """Tables that were re-read, or truncated meanwhile."""

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self.whole or self.notes or self.returned)

    @property
    def awaits(self) -> int | None:
        """The stream's position at which the next chunk can be emitted."""
        return min((each.view.awaits for each in self._waiting), default=None)

    async def room(self) -> None:
        await self._room.acquire()

    def give_room(self) -> None:
        self._room.release()

    def put(self, item: PendingChunk | WholeTable) -> None:
        self._waiting.append(item)
        self._stir.set()

    def take(self, lsn: int) -> PendingChunk | WholeTable | None:
        """Returns the first chunk that need not wait any longer."""
        for item in self._waiting:
            if item.view.awaits <= lsn:
                self._waiting.remove(item)
                if isinstance(item, PendingChunk):
                    self._room.release()
                return item
        return None

    def forget(self, job: SnapshotJob) -> None:
        for item in [item for item in self._waiting if item.job is job]:
            self._waiting.remove(item)
            if isinstance(item, PendingChunk):
                self._room.release()
            else:
                item.is_over.set()

    def finish(self, job: SnapshotJob, *, is_gone: bool = False) -> None:
        """Ends the job of a table. A chunk that is being emitted is not affected."""
        if job.is_over or (self.whole is not None and self.whole.job is job):
            return
        is_replaced = bool(job.progress.reread) and job.is_started and not is_gone
        part, text = job.finish()
        self.notes[part] = text
        if is_replaced:
            self.replaced.append(job.table.schema)
        if job.hold is not None:
            self.returned += job.hold.given_back()
        self.forget(job)
        self._report(job.snapshot_progress())
        self._stir.set()

    def pause(self, job: SnapshotJob, *, is_paused: bool) -> None:
        """Discards chunks of a paused table, which are read again later: its changes need not be
        followed while it is paused. A chunk that is being emitted is not affected."""
        if self.whole is not None and self.whole.job is job:
            return
        job.progress = replace(job.progress, is_paused=is_paused)
        job.let_go()
        if job.hold is not None:
            self.returned += job.hold.given_back()
        self.forget(job)
        self.notes[job.part] = job.progress.text()
        self._stir.set()

    def stir(self) -> None:
        self._stir.set()

    def rest(self) -> None:
        self._stir.clear()

    async def wait_for_work(self) -> None:
        await self._stir.wait()
