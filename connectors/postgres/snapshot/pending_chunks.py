"""What has been read beside the stream, and waits until the stream has come by."""

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
"""Chunks that are read and not handed on, beside one for each connection."""


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
    """The log has rows of it, which go as these come."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class PendingChunks:
    """Holds so few chunks that they fit into memory; whoever reads waits for room."""

    def __init__(self, report: Callable[[SnapshotProgress], None], *, connections: int) -> None:
        self._report = report
        self._room = asyncio.Semaphore(CHUNKS_AHEAD + connections)
        self._waiting: list[PendingChunk | WholeTable] = []
        self._stir = asyncio.Event()
        self.whole: WholeTable | None = None
        """The table that is being handed on as a whole."""
        self.notes: dict[str, str] = {}
        """Parts of the position that are to be written down."""
        self.returned: list[TableChanges] = []
        """Changes that were held, and need not be any more."""
        self.replacements: list[Replacement] = []
        """Tables that are to be read again as a whole."""
        self.replaced: list[TableSchema] = []
        """Tables that have been read again as a whole, or emptied meanwhile."""

    @property
    def is_empty(self) -> bool:
        return not (self._waiting or self.whole or self.notes or self.returned)

    @property
    def awaits(self) -> int | None:
        """Where the stream has to come for the next to be handed on."""
        return min((each.view.awaits for each in self._waiting), default=None)

    async def room(self) -> None:
        await self._room.acquire()

    def give_room(self) -> None:
        self._room.release()

    def put(self, item: PendingChunk | WholeTable) -> None:
        self._waiting.append(item)
        self._stir.set()

    def take(self, lsn: int) -> PendingChunk | WholeTable | None:
        """The first of those that need wait no longer."""
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
        """Nothing more is to be read of the table; one that is just being handed on is let be."""
        if job.is_over or (self.whole is not None and self.whole.job is job):
            return
        is_replaced = bool(job.ledger.reread) and job.is_started and not is_gone
        part, text = job.finish()
        self.notes[part] = text
        if is_replaced:
            self.replaced.append(job.table.schema)
        if job.hold is not None:
            self.returned += job.hold.given_back()
        self.forget(job)
        self._report(job.progress())
        self._stir.set()

    def pause(self, job: SnapshotJob, *, is_paused: bool) -> None:
        """What is being read is let go, to be read again later: while a job rests nobody need
        follow the changes of its table. One that is just being handed on is let be."""
        if self.whole is not None and self.whole.job is job:
            return
        job.ledger = replace(job.ledger, is_paused=is_paused)
        job.let_go()
        if job.hold is not None:
            self.returned += job.hold.given_back()
        self.forget(job)
        self.notes[job.part] = job.ledger.text()
        self._stir.set()

    def stir(self) -> None:
        self._stir.set()

    def rest(self) -> None:
        self._stir.clear()

    async def wait_for_work(self) -> None:
        await self._stir.wait()
