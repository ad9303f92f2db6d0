"""Reads rows of tables in threads: chunk after chunk, or a table without a key as a whole."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from threading import Event

from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.server.catalog import MysqlCatalog
from headwater.connectors.mysql.server.connection import MysqlConnection, connect, finish
from headwater.connectors.mysql.server.server_identity import MysqlServer, MysqlSnapshotPoint
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.chunk_reader import (
    FormChanged,
    connect_to_same,
    read_bound,
    read_chunk,
)
from headwater.connectors.mysql.snapshot.locked_snapshot import LockedSnapshot
from headwater.connectors.mysql.snapshot.table_jobs import StreamedWindow, TableJob, WorkSignal
from headwater.connectors.mysql.snapshot.whole_table import KeylessTableRows, begin_whole_table
from headwater.connectors.snapshot.time_window import RateLimit, TimeWindow
from headwater.connectors.snapshot.unreadable_tables import UnreadableTables
from headwater.connectors.source import SourceContext
from headwater.core_log.client.gather import in_thread, wait_for_end
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)

WAIT_S = 0.01


class TableReaders:
    """Workers with a connection each. They take chunks of the jobs, and put rows into them."""

    def __init__(
        self,
        settings: MysqlSettings,
        context: SourceContext,
        server: MysqlServer,
        catalog: MysqlCatalog,
        groups: BinlogGroupReader,
        jobs: Mapping[TableId, TableJob],
        signal: WorkSignal,
        reading: asyncio.Lock,
        locked: LockedSnapshot | None,
    ) -> None:
        """`reading` is held while the reader of groups works in a thread. `locked`: the rows of new
        tables are read in its transactions, before the stream begins at its position."""
        self._settings, self._context, self._server = settings, context, server
        self._catalog, self._groups, self._reading = catalog, groups, reading
        self._jobs, self._signal, self.locked = jobs, signal, locked
        self._stopped = Event()
        self._workers: set[asyncio.Task[None]] = set()
        self.failure: BaseException | None = None
        self.limit = RateLimit(context.clock, settings.snapshot.max_rows_per_second)
        self._hours = TimeWindow(settings.snapshot.between, context)
        self.unreadable = UnreadableTables(context, signal.wake)
        self.whole_job: TableJob | None = None
        """The one table without a key that is read."""
        self.whole: KeylessTableRows | None = None
        """Its rows, for which the stream waits at their place."""

    @property
    def precede_stream(self) -> bool:
        """Whether rows of the locked snapshot are still to come."""
        if self.locked is None:
            return False
        if any(map(self._is_of_locked, self._jobs.values())):
            return True
        self.end_locked()
        return False

    def _is_of_locked(self, job: TableJob) -> bool:
        """Whether the rows of this table are read in the transactions that have begun together."""
        is_new = not (job.progress.reread or job.progress.signal)
        locked = self.locked
        return locked is not None and job.is_active and is_new and locked.covers(job.table.table)

    def end_locked(self) -> None:
        """Ends the lock; the remaining rows are read beside the stream."""
        if self.locked is not None:
            self.locked.close()
            self.locked = None
            self._signal.wake()

    async def close(self) -> None:
        self.unreadable.close()
        self._stopped.set()
        self._signal.work.set()
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(set(self._workers))
        if self.whole is not None:
            self.whole.close()
        self.end_locked()

    def start(self) -> None:
        if self.failure is not None or not any(map(self._wants_worker, self._jobs.values())):
            return
        for _ in range(self._settings.snapshot.parallel - len(self._workers)):
            worker = asyncio.ensure_future(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self.failure = error
        self._signal.rows.set()

    def _connect(self) -> MysqlConnection:
        name = f"headwater {self._context.pipeline} snapshot"
        return connect_to_same(lambda: connect(self._settings, name=name), self._server)

    async def _work(self) -> None:
        """Reads chunk after chunk, until no table has any left."""
        connection: MysqlConnection | None = None
        begun_at: MysqlSnapshotPoint | None = None
        try:
            while any(not job.is_over for job in self._jobs.values()):
                wanting = filter(self._wants_worker, self._jobs.values())
                job = min(wanting, key=lambda each: len(each.chunks), default=None)
                if job is None:
                    self._signal.work.clear()
                    await self._signal.work.wait()
                    continue
                await self._hours.coming(tables=len(self._jobs))
                if connection is not None and begun_at is not None and self.locked is None:
                    connection.close()
                    connection = begun_at = None
                if connection is None and self.locked is not None:
                    connection = self.locked.take()
                    begun_at = None if connection is None else self.locked.point
                if connection is None:
                    connection = await finish(asyncio.to_thread(self._connect))
                if self._wants_worker(job):
                    await self._read(job, connection, begun_at)
        finally:
            if connection is not None:
                connection.close()

    def _wants_worker(self, job: TableJob) -> bool:
        """One table without a key is read at a time."""
        if self.locked is not None and not self._is_of_locked(job):
            return False
        if not job.table.schema.key:
            return job.is_active and self.whole_job is None
        return job.wants_worker(self._settings.snapshot.parallel)

    async def _begin_whole_locked(
        self, job: TableJob, connection: MysqlConnection, begun_at: MysqlSnapshotPoint
    ) -> None:
        """Returns once all its rows were emitted, when the connection can be used again."""
        self.whole_job = job
        begin = partial(
            begin_whole_table, connection, self._server, self._catalog, job.table, begun_at
        )
        try:
            self.whole = await in_thread(begin)
        finally:
            if self.whole is None:
                self.whole_job = None
        whole, self._groups.stops_at = self.whole, begun_at.place
        self._signal.rows.set()
        while self.whole is not None:
            self._signal.work.clear()
            await self._signal.work.wait()
        if whole is None or not whole.is_drained:
            self.end_locked()  # the connection cannot be used again

    async def _begin_whole(self, job: TableJob) -> None:
        """Finds a position that the stream has not passed yet, and lets it wait there."""
        self.whole_job = job
        connection: MysqlConnection | None = None
        try:
            connection = await finish(asyncio.to_thread(self._connect))
            while not (self._stopped.is_set() or job.is_over):
                async with self._reading:
                    begin = partial(
                        begin_whole_table, connection, self._server, self._catalog, job.table
                    )
                    whole = await finish(asyncio.to_thread(begin))
                    if whole is not None:
                        self.whole, self._groups.stops_at = whole, whole.point.place
                        return
                await asyncio.sleep(WAIT_S)
        finally:
            if self.whole is None:
                self.whole_job = None
                if connection is not None:
                    connection.close()

    async def _read(
        self, job: TableJob, connection: MysqlConnection, begun_at: MysqlSnapshotPoint | None
    ) -> None:
        """`begun_at`: the point of the transaction that is open on this connection."""
        try:
            if job.table.schema.key:
                await self._read_chunk(job, connection, begun_at)
            elif begun_at is not None:
                await self._begin_whole_locked(job, connection, begun_at)
            else:
                await self._begin_whole(job)
        except FormChanged:
            job.drop_chunks()
            if begun_at is not None:
                logger.warning(
                    "%s has changed its form since the lock: its rows, and others that are left,"
                    " are read beside the stream",
                    job.table.table,
                )
                self.end_locked()
            await asyncio.sleep(WAIT_S)  # the stream will tell of the new form
        except SourceRejected as error:
            job.drop_chunks()
            self.unreadable.add(job, job.table.table, error)
        finally:
            self._signal.rows.set()

    async def _read_chunk(
        self, job: TableJob, connection: MysqlConnection, begun_at: MysqlSnapshotPoint | None
    ) -> None:
        limits, taken = self._settings.snapshot, job.next_chunk()
        if sum(each.is_active for each in self._jobs.values()) < limits.parallel:
            bound = partial(
                read_bound, connection, job.table, after=taken.after, rows=limits.chunk_rows
            )
            taken.upto = await finish(asyncio.to_thread(bound))
            self._signal.work.set()  # the next chunk can be read as well
        taken.window = await self._open_window()
        if begun_at is not None and self.locked is None:
            job.drop_chunks()  # the stream may have passed the place of these rows
            return
        reading = asyncio.ensure_future(
            asyncio.to_thread(
                read_chunk,
                connection,
                self._server,
                self._catalog,
                job.table,
                after=taken.after,
                upto=taken.upto,
                rows_max=limits.chunk_rows,
                shows=taken.window.opened_at,
                stopped=self._stopped,
                begun_at=begun_at,
            )
        )
        try:
            chunk = await asyncio.shield(reading)
        except asyncio.CancelledError:
            self._stopped.set()
            try:
                await wait_for_end(reading)
            finally:
                reading.exception()
            raise
        await self.limit.passing(chunk.rows.num_rows)
        taken.chunk = chunk
        self._signal.work.set()

    async def _open_window(self) -> StreamedWindow:
        while True:
            async with self._reading:
                if not self._groups.is_open:
                    return StreamedWindow(self._groups.position.copy())
            await asyncio.sleep(WAIT_S)
