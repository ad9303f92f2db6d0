"""Tables that are read again as a whole, for a new form: when each begins, and what holds it."""

import asyncio
import logging
from dataclasses import dataclass, field

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.snapshot.chunk_planner import estimate_of
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob, SnapshotJobs
from headwater.connectors.postgres.snapshot.pending_chunks import PendingChunks
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, SnapshotPoint
from headwater.connectors.schema_changes import held_by_kind
from headwater.connectors.snapshot.reread_limits import RereadEstimate, begun_by
from headwater.core_log.client.gather import let_go
from headwater.core_log.model.changes import ChangeBatch, Phase, Replacement, source_times
from headwater.core_log.model.table_schema import TableSchema

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Rereads:
    """Nothing of the new form is read before a reading has begun in the log."""

    reader: RowMapper
    jobs: SnapshotJobs
    pending: PendingChunks
    failure: BaseException | None = None
    """The error of an estimate, which the next question for rows raises."""
    _estimates: set[asyncio.Task[None]] = field(default_factory=set)

    def begin_again(self, table: CapturedTable, progress: TableSnapshotProgress) -> None:
        """In place of a reading that may be under way."""
        running = self.jobs.of(table)
        if running is not None:
            self.pending.forget(running)
            if running.hold is not None:
                self.pending.returned += running.hold.given_back()
            running.let_go()
            running.is_over = True
        job = self.jobs.add(table, progress)
        if job.awaits_key:
            self.jobs.hold(job)
        self.announce(job)

    def announce(self, job: SnapshotJob) -> None:
        """The log hears of it now. It starts once the table was left alone for a while, unless a
        person has to say so."""
        self.pending.notes[job.part] = job.progress.text()
        if not job.awaits_key and (why := self._held_at_once(job.progress)):
            self._hold(job, why)
            self.pending.replacements += self.replacement(job, Phase.QUARANTINED)
        else:
            context = self.reader.context
            settle_ms = 0 if context.until_end or job.progress.is_permitted else context.settle_ms
            job.due_ms = context.clock.monotonic_ms() + settle_ms
            self.pending.replacements += self.replacement(job, Phase.PENDING)
            asyncio.get_running_loop().call_later(settle_ms / 1_000, self.pending.stir)
        self.pending.stir()

    def permit(self, job: SnapshotJob) -> None:
        """A person has said that it is to begin."""
        self.begin_again(job.table, job.progress.permit())

    def stop(self, job: SnapshotJob) -> None:
        """A person has said that it is not to go on. One that is just being handed on is let be."""
        if self.pending.whole is None or self.pending.whole.job is not job:
            self.begin_again(job.table, job.progress.stop())

    def is_due(self, job: SnapshotJob) -> bool:
        now_ms = self.reader.context.clock.monotonic_ms()
        is_waiting = not (job.is_started or job.progress.is_paused or job.held)
        return is_waiting and now_ms >= job.due_ms

    def start_next(self, lsn: int) -> ChangeBatch | None:
        """The next of the tables that need not wait any longer, or that is held after all. How
        much there is to be read is looked up first."""
        for job in self.jobs.all():
            if not (self.is_due(job) and lsn >= job.progress.after):
                continue
            if job.estimate is None:
                self._begin_estimate(job)
                continue
            now_ms = self.reader.context.clock.now_ms()
            if why := self._held_by_size(job.progress, job.estimate, now_ms):
                self._hold(job, why)
                found = self.replacement(job, Phase.QUARANTINED)
            else:
                job.is_started = True
                job.progress = job.progress.start(now_ms)
                logger.info("%s: rows are read again: %s", job.table.table, job.estimate.in_words())
                found = self.replacement(job, Phase.STARTED)
            return ChangeBatch((), {job.part: job.progress.text()}, replacements=found)
        return None

    def replacement(self, job: SnapshotJob, phase: Phase) -> tuple[Replacement, ...]:
        why = job.progress.reread
        if job.held:
            why = f"{why}; {job.held}"
        elif phase is Phase.STARTED and job.estimate is not None:
            why = f"{why} ({job.estimate.in_words()})"
        return (Replacement(job.table.schema, phase, why),)

    def complete_replacement(
        self, schema: TableSchema, lsn: int, last: SnapshotPoint | None
    ) -> Replacement:
        """`last`: the snapshot of the last rows, whose time the deletes of missing rows have: a row
        that comes again is newer. None if no rows had to be read."""
        at_us = self.reader.context.clock.now_ms() * 1_000 if last is None else last.at_us
        source = self.reader.origin.block(
            schema.table,
            source_times(at_us),
            snapshot="incremental",
            sequence=f'[null,"{lsn}"]',
            xid=None,
            lsn=lsn,
        )
        return Replacement(schema, Phase.COMPLETE, commit=lsn_text(lsn), source=source)

    async def close(self) -> None:
        for task in [*self._estimates]:
            await let_go(task)

    def _held_at_once(self, progress: TableSnapshotProgress) -> str:
        if progress.is_permitted:
            return ""
        if progress.is_stopped:
            return "its reading was stopped"
        return held_by_kind(progress.kinds, self.reader.context.schema_changes)

    def _held_by_size(
        self, progress: TableSnapshotProgress, estimate: RereadEstimate, now_ms: int
    ) -> str:
        if progress.is_permitted:
            return ""
        if progress.is_one_too_many(now_ms):
            return "it was read again twice within the last hour"
        return estimate.forbids(self.reader.settings.snapshot.reread_max_rows)

    def _hold(self, job: SnapshotJob, why: str) -> None:
        context, table = self.reader.context, job.table.table
        job.held = f"{why}: {begun_by(context.pipeline, table)}"

    def _begin_estimate(self, job: SnapshotJob) -> None:
        if job.is_estimated:
            return
        job.is_estimated = True
        task = asyncio.ensure_future(self._estimate(job))
        self._estimates.add(task)
        task.add_done_callback(self._estimated)

    async def _estimate(self, job: SnapshotJob) -> None:
        reader, connection = self.reader, await self.reader.connect()
        try:
            job.estimate = await estimate_of(
                connection,
                job.table.oid,
                reader.settings.snapshot,
                await asyncio.to_thread(reader.context.free_space),
            )
        finally:
            await connection.close()

    def _estimated(self, task: asyncio.Task[None]) -> None:
        self._estimates.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
        self.pending.stir()
