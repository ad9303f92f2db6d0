"""Reads rows of tables while the stream goes on, so that the log ends as if both were one."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.discovery import wal_end
from headwater.connectors.postgres.schema_history.schema_monitor import FormWatch, next_progress
from headwater.connectors.postgres.schema_history.table_definition import (
    LOST_KEY,
    OTHER_KEY,
    Cause,
)
from headwater.connectors.postgres.server.connection import PgConnection, broken_off, is_of_rows
from headwater.connectors.postgres.snapshot.chunk_reader import ChunkReader
from headwater.connectors.postgres.snapshot.deduplication_window import KeylessBuffer
from headwater.connectors.postgres.snapshot.in_place import InPlaceChanges
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob, SnapshotJobs
from headwater.connectors.postgres.snapshot.pending_chunks import (
    PendingChunk,
    PendingChunks,
    WholeTable,
)
from headwater.connectors.postgres.snapshot.progress import PREFIX, Pages, TableSnapshotProgress
from headwater.connectors.postgres.snapshot.rereads import Rereads
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper
from headwater.connectors.postgres.snapshot.signals import SnapshotSignals
from headwater.connectors.schema_changes import CHANGE_KEY
from headwater.connectors.snapshot.time_window import PausedSnapshots
from headwater.connectors.snapshot.unreadable_tables import UnreadableTables
from headwater.connectors.source import Control
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions, Replacement, TableChanges
from headwater.core_log.model.table_schema import TableId

FORM_TRIES_MAX = 5
"""Attempts to read a chunk before a difference of columns between stream and catalog counts as
permanent."""


class IncrementalSnapshot:
    """An incremental snapshot. The reader of the stream reports every change (`saw`), and after
    each batch, at the end of a transaction, asks for rows to emit (`ready`).

    The position names the work: tables that are not complete, because a snapshot was interrupted or
    they are new in the file; and signals of users (`control`).
    """

    def __init__(
        self,
        reader: RowMapper,
        catalog: Catalog,
        tables: Sequence[CapturedTable],
        positions: Positions,
        *,
        reads_new: bool,
        forms: FormWatch | None = None,
    ) -> None:
        """`forms` learns of tables that change in place."""
        self._reader = reader
        self._connections = reader.settings.snapshot.parallel
        self._jobs = SnapshotJobs(tables, positions, reads_new=reads_new)
        self._pending = PendingChunks(reader.context.report, connections=self._connections)
        self._unreadable = UnreadableTables(reader.context, self._pending.stir)
        self._paused = PausedSnapshots(reader.context)
        self._fetching = ChunkReader(
            reader, catalog, self._jobs, self._pending, self._unreadable, self._follow_key
        )
        self._rereads = Rereads(reader, self._jobs, self._pending)
        self._forms = forms = forms or FormWatch(tables, catalog, {}, may_read=reads_new)
        self.in_place = InPlaceChanges(
            reader,
            catalog,
            self._jobs,
            self._pending,
            forms.unannounced,
            forms.known.get,
            self._read_whole,
        )
        self._signals = SnapshotSignals(reader, self._jobs, self._pending, self._rereads)
        self._tries: dict[tuple[int, Pages], int] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        for job in self._jobs.all():
            if job.progress.reread and not job.progress.has_begun:
                self._rereads.announce(job)
        for table in tables:
            if (progress := self.progress_of(table.oid)).follows:
                self.in_place.restore(table, progress)

    @property
    def has_work(self) -> bool:
        waiting = [
            job.progress.is_paused or job.held or job.is_unreadable for job in self._jobs.all()
        ]
        is_reading = not all(waiting)
        return is_reading or not (self._pending.is_empty and self.in_place.is_empty)

    @property
    def is_watching(self) -> bool:
        """Whether it needs the changes of the stream."""
        return bool(self._jobs.all()) or not (self._pending.is_empty and self.in_place.is_empty)

    @property
    def awaits(self) -> int | None:
        """The position of the stream at which the next rows can be emitted, or read."""
        waiting = [job.progress.after for job in self._jobs.all() if self._rereads.is_due(job)]
        if self._pending.awaits is not None:
            waiting.append(self._pending.awaits)
        waiting += self.in_place.awaits
        return min(waiting, default=None)

    @property
    def notes(self) -> Positions:
        """Parts of the position of tables with new progress, until they are emitted."""
        return self._pending.notes

    def progress_of(self, oid: int) -> TableSnapshotProgress:
        return self._jobs.progress_of(oid)

    def next_progress(
        self, oid: int, table: CapturedTable | None, cause: Cause, after: int
    ) -> TableSnapshotProgress:
        """Returns the progress of a table that has changed; None if it is gone."""
        context = self._reader.context
        return next_progress(self.progress_of(oid), table, cause, after=after, context=context)

    def read_again(self, table: CapturedTable, cause: Cause, *, after: int) -> None:
        """Follows a change in place if that is certain. Else it starts a re-read, once the stream
        has come to `after` and the table has been quiet for a while; if it has lost its key, not
        before it has one."""
        progress = self.next_progress(table.oid, table, cause, after)
        if progress.follows:
            self.in_place.begin(table, progress)
        else:
            self.in_place.forget(table)
            self._rereads.begin_again(table, progress)

    def _read_whole(self, table: CapturedTable) -> None:
        before = self.progress_of(table.oid)
        again = before.to_be_read_again(before.follows, after=before.after)
        self._rereads.begin_again(table, again)

    async def _follow_key(
        self, connection: PgConnection, job: SnapshotJob, table: CapturedTable
    ) -> None:
        """Reads a table again that has another key now than when its job began."""
        after = await wal_end(connection)
        await self._forms.look_and_tell(connection)  # which begins it, unless it knew the key
        if not job.is_over:
            why = OTHER_KEY if table.schema.key else LOST_KEY
            self.read_again(table, Cause(why, (CHANGE_KEY,)), after=after)

    def note_unknown_ids(self, oid: int) -> None:
        """Notes that the log has rows of a table without the ids of all columns."""
        progress = self.progress_of(oid)
        if not progress.has_ids:
            return
        progress = replace(progress, has_ids=False)
        self._jobs.store(oid, progress)
        table = next((name for name, each in self._jobs.tables.items() if each.oid == oid), None)
        if table is not None:
            self._pending.notes[f"{PREFIX}{table}"] = progress.text()
            self._pending.stir()

    def stale(self, table: TableId, commits: Int64Array) -> int:
        """Returns how many of these changes, by their commits, are older than the truncation of a
        table that was read later."""
        job = self._jobs.find(str(table))
        return 0 if job is None else int(np.searchsorted(commits, job.progress.since))

    def saw(self, changes: TableChanges, xids: Int64Array) -> Sequence[TableChanges]:
        """Returns what to emit for a change of the stream: the change itself, except for a table
        without a key that is being read. `xids` has each change's transaction."""
        self.in_place.saw(changes, xids)
        job = self._jobs.find(str(changes.schema.table))
        if job is None or job.progress.is_paused:
            return [changes]
        job.watch.saw(changes, xids)
        if job.hold is None:
            return [changes]
        job.hold.saw(changes, xids)
        return self._given_up(job, job.hold) if job.hold.is_overrun else []

    def _given_up(self, job: SnapshotJob, hold: KeylessBuffer) -> Sequence[TableChanges]:
        """Gives up a table without a key: returns the buffered changes, and starts the table
        again."""
        job.hold = None
        job.let_go()
        self._pending.forget(job)
        return hold.given_back()

    def forget_rows(self, table: TableId) -> None:
        """Forgets the rows of a truncated table: all its present rows come by the stream."""
        self.in_place.forget_rows(table)
        job = self._jobs.find(str(table))
        if job is None:
            return
        if job.hold is not None:
            job.hold.given_back()
        if job.progress.has_begun:
            self._pending.finish(job)

    async def ready(self, lsn: int) -> ChangeBatch | None:
        """Returns what can be emitted at that position of the stream; called until it is None. A
        batch without a position is a part of those that follow."""
        jobs = self._jobs.all()
        self._unreadable.keep({each.table.table for each in jobs})
        self._paused.tell({each.table.table for each in jobs if each.progress.is_paused})
        self._start_workers()
        if (failure := self._failure or self._rereads.failure) is not None:
            raise failure
        pending = self._pending
        if pending.whole is not None:
            return await self._next_of(pending.whole, lsn)
        if pending.notes or pending.returned:
            replacements = [*pending.replacements]
            replacements += [
                self._rereads.complete_replacement(each, lsn, None) for each in pending.replaced
            ]
            batch = ChangeBatch(
                tuple(pending.returned), pending.notes, replacements=tuple(replacements)
            )
            pending.notes, pending.returned = {}, []
            pending.replacements, pending.replaced = [], []
            return batch
        if (start := self._rereads.start_next(lsn)) is not None:
            self._start_workers()
            return start
        if (row := self.in_place.ready(lsn)) is not None:
            return row
        while (item := pending.take(lsn)) is not None:
            if isinstance(item, WholeTable):
                pending.whole = item
                return await self._next_of(item, lsn)
            item.job.watch.close(item.window)
            if (found := self._handed_on(item, lsn)) is not None:
                return found
        pending.rest()
        return None

    async def wait_for_work(self) -> None:
        """Waits until there may be rows, even if the stream has not moved."""
        self._start_workers()
        await self._pending.wait_for_work()

    async def control(self, control: Control) -> None:
        """Starts, pauses, resumes or stops the snapshot of one table, or of all."""
        await self._signals.fulfil(control)

    async def close(self) -> None:
        self._unreadable.close()
        await self._rereads.close()
        await self.in_place.close()
        workers = set(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)
        if self._pending.whole is not None:
            await self._pending.whole.batches.aclose()

    def _handed_on(self, read: PendingChunk, lsn: int) -> ChangeBatch | None:
        job = read.job
        if job.is_over or read.chunk not in job.under_way:
            return None
        if read.window.is_overrun or self._has_other_form(read):
            job.put_back(read.chunk)
            self._start_workers()
            return None
        job.under_way.remove(read.chunk)
        kept = [rows for rows in map(read.window.drop_streamed, read.rows) if rows.num_rows]
        changes = [
            self._reader.changes(read.table, rows, read.view.moment, snapshot="incremental")
            for rows in kept
        ]
        count = sum(rows.num_rows for rows in read.rows)
        job.progress = job.progress.with_read(read.chunk.leaf.oid, read.chunk.pages, rows=count)
        replaced: tuple[Replacement, ...] = ()
        if job.progress.is_read and job.progress.reread:
            moment = read.view.moment
            replaced = (self._rereads.complete_replacement(job.table.schema, lsn, moment),)
        part, text = job.finish() if job.progress.is_read else (job.part, job.progress.text())
        self._reader.context.report(job.snapshot_progress())
        return ChangeBatch(tuple(changes), {part: text}, replacements=replaced)

    def _has_other_form(self, read: PendingChunk) -> bool:
        """Whether the stream has another schema of the table than the rows."""
        form = read.table.schema.arrow
        if read.window.has_other_key(
            pa.schema([form.field(name) for name in read.table.schema.key])
        ):
            return True
        if not read.window.has_other_form(form):
            return False
        place = (read.chunk.leaf.oid, read.chunk.pages)
        self._tries[place] = self._tries.get(place, 0) + 1
        return self._tries[place] < FORM_TRIES_MAX

    async def _next_of(self, whole: WholeTable, lsn: int) -> ChangeBatch:
        try:
            batch = await anext(whole.batches)
        except SourceRejected as error:
            raise (broken_off(error) if is_of_rows(error) else error) from None
        if not batch.positions:
            return batch
        self._pending.whole = None
        await whole.batches.aclose()
        whole.is_over.set()
        if not whole.is_replacement:
            return batch
        schema, moment = whole.job.table.schema, whole.view.moment
        replaced = self._rereads.complete_replacement(schema, lsn, moment)
        return replace(batch, replacements=(replaced,))

    def _start_workers(self) -> None:
        missing = self._connections - len(self._workers)
        if missing > 0 and self._failure is None and self._jobs.next() is not None:
            for _ in range(missing):
                worker = asyncio.ensure_future(self._fetching.run())
                self._workers.add(worker)
                worker.add_done_callback(self._remaining)

    def _remaining(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._failure = error
        self._pending.stir()
