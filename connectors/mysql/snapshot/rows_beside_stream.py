"""Reads rows of tables while the stream goes on, so that the log ends as if both were one."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.schema_history.stream_forms import StreamForms
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable
from headwater.connectors.mysql.server.connection import finish
from headwater.connectors.mysql.server.server_identity import (
    FilePosition,
    MysqlServer,
    MysqlSnapshotPoint,
)
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.chunk_reader import (
    MysqlChunk,
    completion_of,
    read_changes,
)
from headwater.connectors.mysql.snapshot.locked_snapshot import LockedSnapshot
from headwater.connectors.mysql.snapshot.table_jobs import (
    MysqlTableProgress,
    StreamedWindow,
    TableJob,
    WorkSignal,
    estimate_of,
    form_part,
    form_text,
    progress_part,
)
from headwater.connectors.mysql.snapshot.table_readers import TableReaders
from headwater.connectors.mysql.snapshot.whole_table import (
    truncation_before_rows,
)
from headwater.connectors.schema_changes import held_by_kind
from headwater.connectors.snapshot.reread_limits import RereadEstimate, begun_by
from headwater.connectors.snapshot.time_window import PausedSnapshots
from headwater.connectors.source import CONTROL, REFUSED, Control, SnapshotProgress, SourceContext
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Phase, Replacement, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

logger = logging.getLogger(__name__)

KIND = "snapshot"
WAIT_S = 0.01
CHUNK_ROWS = 20_000
"""Rows per batch of a table that is read as a whole."""


class RowsBesideStream:
    """The follower of the stream tells it of every change (`saw`), and asks between groups for rows
    to emit (`ready`)."""

    def __init__(
        self,
        settings: MysqlSettings,
        context: SourceContext,
        server: MysqlServer,
        catalog: MysqlCatalog,
        reader: BinlogGroupReader,
        tables: Mapping[TableId, MysqlTable],
        reading: asyncio.Lock,
        locked: LockedSnapshot | None = None,
    ) -> None:
        """`reading` is held while the reader of groups works in a thread. `locked`: the rows of new
        tables are read in its transactions, before the stream begins at its position."""
        self._settings, self._context, self._reader = settings, context, reader
        self._tables = tables
        self._jobs: dict[TableId, TableJob] = {}
        self._done: dict[TableId, MysqlTableProgress] = {}
        self._signal = WorkSignal()
        self._readers = TableReaders(
            settings, context, server, catalog, reader, self._jobs, self._signal, reading, locked
        )
        self._paused = PausedSnapshots(context)
        self.notes: dict[str, str] = {}
        """Parts of the position to store."""
        self._replacements: list[Replacement] = []

    @property
    def forms(self) -> StreamForms:
        return self._reader.forms

    @property
    def has_work(self) -> bool:
        waiting = [
            job.progress.is_paused or job.held or job.is_unreadable for job in self._jobs.values()
        ]
        return not all(waiting) or bool(self.notes or self.forms.leaving)

    @property
    def precedes_stream(self) -> bool:
        """Whether rows of a locked snapshot are still to come."""
        return self._readers.precede_stream

    def restore(
        self,
        table: MysqlTable,
        progress: MysqlTableProgress | None,
        former: MysqlTable | None = None,
    ) -> None:
        """Goes on where the position says; a table without progress is read as a new one. `former`:
        the form in which the log has its rows, if that is another one."""
        if table.problem:
            return
        if former is None and progress is not None and progress.awaits_other_key:
            self.forms.awaited.add(table.table)
        else:
            self.forms.write(former or table)
        if progress is None:
            self.note_form(table)
            progress = MysqlTableProgress(
                is_done=self._settings.snapshot.mode == "never", is_keyless=not table.schema.key
            )
            self.notes[progress_part(table.table)] = progress.text()
        self._done.pop(table.table, None)
        if progress.is_done:
            self._done[table.table] = progress
            return
        job = self._jobs[table.table] = TableJob(table, progress)
        if progress.reread and not progress.is_started:
            self._announce(job)

    def note_form(self, table: MysqlTable) -> None:
        """Together with the form in which the log has the rows, until they are read again."""
        written, form = self.forms.written.get(table.table), table.form()
        if written is not None and written.form() != form:
            form["former"] = written.form()
        self.notes[form_part(table.table)] = form_text(form)

    def read_again(
        self, table: MysqlTable, why: str, kinds: Sequence[str], *, has_other_key: bool
    ) -> None:
        """In place of a reading that may be under way. With another key than the log has, changes
        are left out until it starts: its topic cannot have both."""
        if self._settings.snapshot.mode == "never":
            raise SourceRejected(
                "a table has to be read again, which `snapshot.mode: never` rules out",
                table=str(table.table),
                why=why,
                hint="write `snapshot.mode: initial` into the source; tables that were streamed"
                " before are only read when they have to be",
            )
        before = self._progress_of(table.table)
        progress = (before or MysqlTableProgress()).again(why, kinds, has_other_key=has_other_key)
        progress = replace(progress, is_keyless=not table.schema.key)
        if table.table not in self.forms.written:
            self.forms.awaited.add(table.table)
        self._replace(TableJob(table, progress))
        self.note_form(table)

    def knows(self, table: TableId) -> bool:
        return self._progress_of(table) is not None

    def has_lost_key(self, table: MysqlTable) -> bool:
        """Whether the log has rows of the table under a key, and it has none any more."""
        before = self._progress_of(table.table)
        return not (table.schema.key or table.problem or before is None or before.is_keyless)

    def remember(self, table: TableId, text: str) -> None:
        """The log has rows of this table, whether it is captured now or not."""
        self._done.setdefault(table, MysqlTableProgress.parse(text))

    def leave(self, table: TableId, *, until_read: str = "") -> None:
        """The table is gone: its rows in the log stay, and if it comes again it is read again.
        `until_read`: why it has to be read, if it can be captured after all."""
        before = self._progress_of(table)
        self._end_job(table)
        if before is not None:
            left = before.again(until_read) if until_read else before.finish()
            self._done[table] = left
            self.notes[progress_part(table)] = left.text()
        if not until_read:
            self.end_reread(table)

    def end_reread(self, table: TableId) -> None:
        """The log waits no longer for the rows of a table that is not captured any more."""
        self._replacements.append(Replacement(TableSchema(table, (), ()), Phase.GONE))

    def _end_job(self, table: TableId) -> None:
        job = self._jobs.pop(table, None)
        if job is not None:
            job.is_over = True
            job.drop_chunks()
            self._readers.unreadable.keep({*self._jobs})
        self._done.pop(table, None)

    def saw(self, changes: TableChanges) -> None:
        job = self._jobs.get(changes.schema.table)
        if job is None:
            return
        if changes.is_truncate:
            job.drop_chunks()
            job.progress = job.progress.restart()
            self.notes[progress_part(job.table.table)] = job.progress.text()
            self._signal.work.set()
            return
        if changes.schema != job.table.schema:
            job.drop_chunks()  # it is no newer row in the form that is read
        for chunk in job.chunks:
            if chunk.window is not None:
                chunk.window.saw(changes)

    def suspect(self, table: TableId) -> None:
        """Rows of the table were left out of the stream."""
        job = self._jobs.get(table)
        if job is not None:
            job.drop_chunks()

    async def ready(self, place: FilePosition) -> ChangeBatch | None:
        """Returns what can be emitted at that place of the stream, between two groups."""
        self._readers.unreadable.keep({*self._jobs})
        self._paused.tell({name for name, job in self._jobs.items() if job.progress.is_paused})
        self._readers.start()
        if self._readers.failure is not None:
            raise self._readers.failure
        if self.notes or self._replacements:
            batch = ChangeBatch((), self.notes, replacements=tuple(self._replacements))
            self.notes, self._replacements = {}, []
            return batch
        for job in self._jobs.values():
            if self._is_due(job, place):
                return await self._start(job, place)
            first = job.chunks[0] if job.chunks else None
            if first is not None and first.chunk and first.chunk.point.place.order <= place.order:
                self._signal.work.set()
                assert first.window is not None, "it was opened before the rows were read"
                if not first.window.is_overrun:
                    job.chunks.pop(0)
                    return self._emit(job, first.chunk, first.window, place)
                job.drop_chunks()
        for name in [name for name, job in self._jobs.items() if job.is_over]:
            del self._jobs[name]
        return None

    async def whole_table(self) -> AsyncGenerator[ChangeBatch, None]:
        """Yields all rows of the table for which the stream waits: one transaction of the log."""
        job, whole = self._readers.whole_job, self._readers.whole
        assert job is not None and whole is not None, "the stream waits for a table"
        try:
            if job.is_over:
                return
            kind, point = self._kind_of(job), whole.point
            truncate = truncation_before_rows(job.table, self._origin, point, kind)
            yield ChangeBatch((truncate,), {})
            count = 0
            while (rows := await finish(asyncio.to_thread(whole.next))) is not None:
                self._readers.limit.owed_ms(
                    rows.num_rows
                )  # chunks of other tables wait, and no change
                count += rows.num_rows
                changes = read_changes(self._origin, job.table, rows, point, kind)
                for start in range(0, len(changes), CHUNK_ROWS):
                    yield ChangeBatch((changes.slice(start, CHUNK_ROWS),), {})
            parts = self._reader.parts()
            if job.is_over:  # a signal came meanwhile: its next reading is to come
                yield ChangeBatch((), parts)
                return
            job.progress = replace(job.progress, rows=count)
            replaced = (
                (completion_of(self._origin, job.table, point),) if job.progress.reread else ()
            )
            parts = {**parts, **self._finish(job)}
            yield ChangeBatch((), parts, replacements=replaced)
        finally:
            self._reader.stops_at = self._readers.whole = self._readers.whole_job = None
            whole.close()
            self._signal.work.set()

    def _finish(self, job: TableJob) -> dict[str, str]:
        name = job.table.table
        job.is_over = True
        job.progress = self._done[name] = job.progress.finish()
        self._jobs.pop(name, None)
        self._readers.unreadable.keep({*self._jobs})
        self._report(job)
        self.forms.write(job.table)
        return {
            progress_part(name): job.progress.text(),
            form_part(name): form_text(job.table.form()),
        }

    def _report(self, job: TableJob) -> None:
        self._context.report(
            SnapshotProgress(
                job.table.table,
                job.progress.rows,
                max(job.table.rows_estimate, job.progress.rows) or None,
                is_done=job.is_over,
            )
        )

    def _kind_of(self, job: TableJob) -> str:
        return "incremental" if job.progress.reread or job.progress.signal else "true"

    async def wait_for_rows(self) -> None:
        await self._signal.rows.wait()
        self._signal.rows.clear()

    async def control(self, control: Control) -> None:
        if control.kind != KIND:
            raise SourceRejected("the source does not support this signal", kind=control.kind)
        action = control.options.get("action", "start")
        names = [*self._tables] if control.table is None else self._named(control.table)
        try:
            for name in names:
                self._control(name, action, control)
        except SourceRejected:
            self.notes[f"{CONTROL}{control.id}"] = REFUSED
            self._signal.wake()
            raise
        self.notes[f"{CONTROL}{control.id}"] = action
        self._signal.wake()

    def _named(self, table: TableId) -> list[TableId]:
        """Returns the captured table of that whole name: a signal does not know which dot of it
        ends the database."""
        return [each for each in self._tables if str(each) == str(table)] or [table]

    def _control(self, name: TableId, action: str, control: Control) -> None:
        table, job = self._tables.get(name), self._jobs.get(name)
        if table is None or table.problem:
            raise SourceRejected(
                "the pipeline does not capture this table",
                table=str(name),
                hint="add it to `tables` of the source, or let headwater status say why it is left"
                " out",
            )
        if control.options.get("where"):
            raise SourceRejected(
                "a snapshot of MySQL with a condition is not supported", hint="leave --where out"
            )
        match action:
            case "start" if job is None:
                before = self._progress_of(name) or MysqlTableProgress()
                begun = replace(before.again("").permit(), signal=control.id)
                self._jobs[name] = TableJob(table, begun)
                self.notes[progress_part(name)] = begun.text()
            case "start" | "resume" if job is not None:
                job.held = ""
                self._set(job, replace(job.progress.permit(), is_paused=False))
            case "pause" if job is not None:
                job.drop_chunks()
                self._set(job, replace(job.progress, is_paused=True))
            case "stop" if job is not None:
                self._stop(job)
            case "start" | "resume" | "pause" | "stop":
                pass
            case _:
                raise SourceRejected("a snapshot does not support this signal", action=action)

    def _stop(self, job: TableJob) -> None:
        if job.progress.reread:
            stopped = replace(job.progress.again(job.progress.reread), is_stopped=True)
            self._replace(TableJob(job.table, stopped))
            return
        job.is_over = True
        job.drop_chunks()
        self._set(job, job.progress.finish())
        self._done[job.table.table] = job.progress

    async def close(self) -> None:
        await self._readers.close()

    def _progress_of(self, table: TableId) -> MysqlTableProgress | None:
        job = self._jobs.get(table)
        return self._done.get(table) if job is None else job.progress

    def _replace(self, job: TableJob) -> None:
        self._end_job(job.table.table)
        self._jobs[job.table.table] = job
        self._announce(job)

    def _set(self, job: TableJob, progress: MysqlTableProgress) -> None:
        job.progress = progress
        self.notes[progress_part(job.table.table)] = progress.text()
        self._signal.wake()

    def _announce(self, job: TableJob) -> None:
        """The log hears of a re-read now; it begins later, unless a person has to say so."""
        self.notes[progress_part(job.table.table)] = job.progress.text()
        context, progress = self._context, job.progress
        if not progress.is_permitted:
            forbidden = held_by_kind(progress.kinds, context.schema_changes)
            if progress.is_stopped:
                self._hold(job, "its reading was stopped")
            elif forbidden:
                self._hold(job, forbidden)
        if job.held:
            self._replacements.append(self._replacement(job, Phase.QUARANTINED))
        else:
            settle_ms = 0 if context.until_end or progress.is_permitted else context.settle_ms
            job.due_ms = context.clock.monotonic_ms() + settle_ms
            self._replacements.append(self._replacement(job, Phase.PENDING))
            asyncio.get_running_loop().call_later(settle_ms / 1_000, self._signal.wake)
        self._signal.wake()

    def _hold(self, job: TableJob, why: str) -> None:
        job.held = f"{why}: {begun_by(self._context.pipeline, job.table.table)}"

    def _is_due(self, job: TableJob, place: FilePosition) -> bool:
        """A re-read under another key waits until the stream has come to where the table was looked
        up: changes before may have the key that the topic has."""
        progress = job.progress
        if not progress.reread or progress.is_started or progress.is_paused or job.held:
            return False
        known_at = self.forms.known_at.get(job.table.table, place)
        if progress.has_other_key and place.order < known_at.order:
            return False
        return self._context.clock.monotonic_ms() >= job.due_ms

    async def _start(self, job: TableJob, place: FilePosition) -> ChangeBatch | None:
        now_ms, estimate = self._context.clock.now_ms(), await self._estimate(job.table)
        if job.is_over or not self._is_due(job, place):  # a signal came meanwhile
            return None
        if not job.progress.is_permitted:
            if job.progress.is_one_too_many(now_ms):
                self._hold(job, "it was read again twice within the last hour")
            elif why := estimate.forbids(self._settings.snapshot.reread_max_rows):
                self._hold(job, why)
        if job.held:
            found = self._replacement(job, Phase.QUARANTINED)
        else:
            logger.info("%s: rows are read again: %s", job.table.table, estimate.in_words())
            job.progress = job.progress.start(now_ms)
            if not self.forms.has_key(job.table):
                self.forms.write(job.table)
            found = self._replacement(job, Phase.STARTED)
            found = replace(found, why=f"{found.why} ({estimate.in_words()})")
            self._signal.work.set()
            self.note_form(job.table)
        parts = {progress_part(job.table.table): job.progress.text(), **self.notes}
        self.notes = {}
        return ChangeBatch((), parts, replacements=(found,))

    async def _estimate(self, table: MysqlTable) -> RereadEstimate:
        free = await asyncio.to_thread(self._context.free_space)
        return estimate_of(table, self._settings.snapshot, free)

    def _replacement(self, job: TableJob, phase: Phase) -> Replacement:
        why = job.progress.reread
        return Replacement(job.table.schema, phase, f"{why}; {job.held}" if job.held else why)

    def _emit(
        self, job: TableJob, chunk: MysqlChunk, window: StreamedWindow, place: FilePosition
    ) -> ChangeBatch:
        name, rows = job.table.table, window.drop_streamed(chunk.rows)
        count = chunk.rows.num_rows
        if chunk.last is not None:
            job.progress = job.progress.advance(chunk.last, rows=count)
        replaced: tuple[Replacement, ...] = ()
        kind = self._kind_of(job)
        found = read_changes(self._origin, job.table, rows, chunk.point, kind)
        tables = (found,) if rows.num_rows else ()
        if chunk.is_last:
            if job.progress.reread:
                end = MysqlSnapshotPoint(place, chunk.point.at_us)
                replaced = (completion_of(self._origin, job.table, end),)
            return ChangeBatch(tables, self._finish(job), replacements=replaced)
        self._report(job)
        return ChangeBatch(tables, {progress_part(name): job.progress.text()})

    @property
    def _origin(self) -> MysqlOrigin:
        return self._reader.origin
