"""Reads one chunk after another over one connection."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.events.rejects import RejectedRows
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, is_of_rows
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize, sizes_of
from headwater.connectors.postgres.snapshot.deduplication_window import (
    DeduplicationWindow,
    KeylessBuffer,
)
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob, SnapshotJobs
from headwater.connectors.postgres.snapshot.pending_chunks import (
    PendingChunk,
    PendingChunks,
    WholeTable,
)
from headwater.connectors.postgres.snapshot.progress import Chunk, LeafProgress
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, statement_of
from headwater.connectors.postgres.snapshot.transaction import (
    SnapshotTransaction,
    flush,
    viewing,
    writers_over,
)
from headwater.connectors.snapshot.unreadable_tables import UnreadableTables
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import ChangeBatch
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)

AGAIN_S = 0.02
GONE = {"42P01", "3F000"}
"""The table or its schema no longer exists."""


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """A reader of chunks. Each chunk has its own transaction, which is kept short."""

    reader: RowMapper
    catalog: Catalog
    jobs: SnapshotJobs
    pending: PendingChunks
    unreadable: UnreadableTables
    follow_key: Callable[[PgConnection, SnapshotJob, CapturedTable], Awaitable[None]]
    """Begins the job of a table anew that has another key now: its topic takes no such rows."""

    async def run(self) -> None:
        """Runs until nothing can be read at the moment."""
        while self.jobs.next() is not None:
            if not self.reader.hours.are_on:
                self._rest()
            await self.reader.hours.coming(tables=len(self.jobs.all()))
            await self._run()

    async def _run(self) -> None:
        """Runs inside the time window."""
        connection = await self.reader.connect()
        try:
            while self.reader.hours.are_on and (job := self.jobs.next()) is not None:
                try:
                    await self._advance(connection, job)
                except HeadwaterError as error:
                    if is_of_rows(error):
                        job.let_go()
                        self.pending.forget(job)
                        self.unreadable.add(job, job.table.table, error)
                        return
                    if error.facts.get("sqlstate") not in GONE:
                        raise
                    with in_our_words("the reading cannot be ended"):
                        await connection.execute("ROLLBACK")
                    await self._look_again(connection, job)
        finally:
            await connection.close()

    def _rest(self) -> None:
        """Forgets streamed keys until the time window opens again."""
        for job in self.jobs.all():
            if not job.is_taken:
                job.watch.rest()

    async def _advance(self, connection: PgConnection, job: SnapshotJob) -> None:
        if job.is_prepared and job.watch.is_on:
            chunk = job.todo.popleft()
            job.under_way.append(chunk)
            await self.pending.room()
            read: PendingChunk | None = None
            try:
                read = await self._read(connection, job, chunk)
            finally:
                if read is None or job.is_over:
                    self.pending.give_room()
                else:
                    self.pending.put(read)
            return
        job.is_taken = True
        job.watch.begin()
        try:
            await (self._prepare if job.has_key else self._read_whole)(connection, job)
        finally:
            job.is_taken = False
            if not job.is_prepared:
                job.watch.rest()

    async def _prepare(self, connection: PgConnection, job: SnapshotJob) -> None:
        oid, table = job.table.oid, job.table.table
        await self._quiet(connection, job)
        if job.is_prepared:
            return  # it has paused, and continues with the rest
        async with viewing(connection, [table]) as view:
            sizes = await sizes_of(connection, [oid])
        if not job.fits(sizes):
            if job.progress.reread and job.progress.has_begun:
                await self._look_again(connection, job)  # it also starts again in the log
                return
            job.begin(view.snapshot, sizes)
        job.prepare(sizes, chunk_rows=self.reader.settings.snapshot.chunk_rows)
        self.reader.context.report(job.snapshot_progress())
        if job.progress.is_read and not job.progress.since:
            self.pending.finish(job)
        elif job.progress.is_read:  # left out until the stream has passed what is older
            chunk = Chunk(LeafProgress(oid, 0, 0), (0, 0))
            job.under_way.append(chunk)
            await self.pending.room()
            nothing = DeduplicationWindow(job.watch.streamed[:0])
            self.pending.put(PendingChunk(job, chunk, job.table, nothing, view, []))
            await flush(connection)

    async def _quiet(self, connection: PgConnection, job: SnapshotJob) -> list[TableSize]:
        """Returns once all transactions that have written to the table are over."""
        sizes = await sizes_of(connection, [job.table.oid])
        relations = [job.table.oid, *(size.leaf.oid for size in sizes)]
        await writers_over(connection, job.table.table, relations)
        return sizes

    async def _read(
        self, connection: PgConnection, job: SnapshotJob, chunk: Chunk
    ) -> PendingChunk | None:
        """Reads a chunk; returns None if the chunk is obsolete, or must be read again."""
        if job.is_taken or not job.watch.is_on:  # paused while there was no room
            job.put_back(chunk)
            return None
        size = job.sizes[chunk.leaf.oid]
        window, rows = job.watch.open(), list[pa.RecordBatch]()
        locked = dict.fromkeys([job.table.table, TableId(size.namespace, size.name)])
        async with viewing(connection, [*locked]) as view:
            now = await sizes_of(connection, [chunk.leaf.oid])
            found = await self._form_of(connection, job)
            is_same = bool(found and now and now[0].leaf.filenode == chunk.leaf.filenode)
            is_same = is_same and found[0].schema.has_key_of(job.table.schema)
            is_usable = window.is_usable_under(view.snapshot)
            if is_same and is_usable and job.progress.snapshot is not None:
                statement = statement_of(
                    found[0],
                    size,
                    chunk.pages,
                    where=self._where_of(job),
                    unless=view.condition_since(job.progress.snapshot),
                )
                pieces = self.reader.pieces(self.reader.copier(connection), found[0], statement)
                rows = [piece async for piece in pieces]
        if is_same and is_usable:
            await flush(connection)
            return PendingChunk(job, chunk, found[0], window, view, rows)
        job.watch.close(window)
        if is_same:
            job.put_back(chunk)
            await asyncio.sleep(AGAIN_S)
        else:
            await self._look_again(connection, job)
        return None

    async def _form_of(self, connection: PgConnection, job: SnapshotJob) -> list[CapturedTable]:
        """Returns the table's columns without a further lock: whoever alters the partitioned table
        locks partitions in another order."""
        with in_our_words("the table cannot be looked up", table=str(job.table.table)):
            return await self.catalog.tables_of(connection, [job.table.oid])

    def _where_of(self, job: SnapshotJob) -> str:
        """Returns the file's condition, which applies to the initial snapshot only."""
        if job.progress.signal or job.progress.reread:
            return job.progress.where
        return self.reader.where_of(job.table)

    async def _look_again(self, connection: PgConnection, job: SnapshotJob) -> None:
        """Looks up a table that was rewritten, so that all read rows are obsolete, or dropped, or
        that has another key."""
        if job.is_over:
            return
        self.pending.forget(job)
        job.begin_anew()
        found = await self._form_of(connection, job)
        if not found:
            self.pending.finish(job, is_gone=True)
        elif found[0].schema.has_key_of(job.table.schema):
            job.table = found[0]
        else:
            await self.follow_key(connection, job, found[0])

    async def _read_whole(self, connection: PgConnection, job: SnapshotJob) -> None:
        if job.progress.has_begun:
            logger.info("%s has no key, so its rows are read anew from the first", job.table.table)
        sizes = await self._quiet(connection, job)
        if not job.watch.is_on:
            return  # it was paused meanwhile, without following its changes
        job.hold = hold = KeylessBuffer(job.watch.streamed)
        try:
            while not (job.is_over or job.progress.is_paused or hold.is_overrun):
                if not job.watch.is_on:
                    return  # it was paused and resumed: its changes were not followed
                leaves = [TableId(size.namespace, size.name) for size in sizes]
                async with viewing(connection, [job.table.table, *leaves]) as view:
                    sizes = await sizes_of(connection, [job.table.oid])
                    found = await self._form_of(connection, job)
                    if not found or found[0].schema.has_key_of(job.table.schema):
                        job.table = found[0] if found else job.table  # it may have more columns
                        if await self._read_under(connection, job, hold, view, sizes):
                            return
                        found = []
                if found:
                    await self._look_again(connection, job)
                    return
                await asyncio.sleep(AGAIN_S)
        finally:
            job.hold = None
            if not job.progress.is_done:
                self.pending.returned += hold.given_back()

    async def _read_under(
        self,
        connection: PgConnection,
        job: SnapshotJob,
        hold: KeylessBuffer,
        view: SnapshotTransaction,
        sizes: Sequence[TableSize],
    ) -> bool:
        """Reads a whole table; returns whether this attempt is over, though nothing may have been
        emitted. Another one is needed if the stream has not come to the snapshot."""
        if not hold.can_be_read_under(view.snapshot) or hold.is_overrun:
            return False
        job.begin(view.snapshot, sizes)
        job.prepare(sizes, chunk_rows=self.reader.settings.snapshot.chunk_rows)
        job.todo.clear()  # it is read without a break
        await self._try_every_row(connection, job)
        if not hold.is_overrun and job.watch.is_on:  # else it was given up or paused meanwhile
            batches = self._batches_of_whole(connection, job, hold, view)
            whole = WholeTable(job, view, batches, bool(job.progress.reread))
            self.pending.put(whole)
            await self._flush_beside()
            await whole.is_over.wait()
        return True

    async def _try_every_row(self, connection: PgConnection, job: SnapshotJob) -> None:
        """Reads all rows once without emitting any: the truncate and the rows before one that
        cannot be read could not be taken back."""
        for leaf in job.progress.leaves:
            tried = self._rows_of(connection, job, leaf, set_aside=RejectedRows())
            async with aclosing(tried) as pieces:
                async for _ in pieces:
                    pass

    def _rows_of(
        self,
        connection: PgConnection,
        job: SnapshotJob,
        leaf: LeafProgress,
        *,
        set_aside: RejectedRows | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        table, where = job.table, self._where_of(job)
        statement = statement_of(table, job.sizes[leaf.oid], (0, leaf.pages), where=where)
        copier = self.reader.copier(connection)
        return self.reader.pieces(copier, table, statement, set_aside=set_aside)

    async def _flush_beside(self) -> None:
        connection = await self.reader.connect()
        try:
            await flush(connection)
        finally:
            await connection.close()

    async def _batches_of_whole(
        self,
        connection: PgConnection,
        job: SnapshotJob,
        hold: KeylessBuffer,
        view: SnapshotTransaction,
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Returns the batches; only the last one has a position, so that all become readable at
        once."""
        reader, table = self.reader, job.table
        yield ChangeBatch((reader.truncation(table, view.moment),), {})
        for leaf in job.progress.leaves:
            async with aclosing(self._rows_of(connection, job, leaf)) as pieces:
                async for rows in pieces:
                    changes = reader.changes(table, rows, view.moment, snapshot="incremental")
                    yield ChangeBatch((changes,), {})
                    job.progress = replace(job.progress, rows=job.progress.rows + rows.num_rows)
                    reader.context.report(job.snapshot_progress())
            job.progress = job.progress.with_read(leaf.oid, (0, leaf.pages), rows=0)
        later = hold.later(view.snapshot)
        part, text = job.finish()
        reader.context.report(job.snapshot_progress())
        yield ChangeBatch(tuple(later), {part: text})
