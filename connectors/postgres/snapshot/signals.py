"""Signals of users about snapshots: start, pause, resume, stop."""

from dataclasses import dataclass

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.server.connection import in_our_words
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob, SnapshotJobs
from headwater.connectors.postgres.snapshot.pending_chunks import PendingChunks
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.postgres.snapshot.rereads import Rereads
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, verbatim
from headwater.connectors.source import CONTROL, REFUSED, Control, Remark
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected

KIND = "snapshot"
ACTION, WHERE = "action", "where"
START, PAUSE, RESUME, STOP = "start", "pause", "resume", "stop"


def asks_for_rest(control: Control) -> bool:
    """Whether reading should pause; an initial snapshot is then continued by an incremental one."""
    return control.kind == KIND and control.options.get(ACTION) in (PAUSE, STOP)


@dataclass(frozen=True, slots=True)
class SnapshotSignals:
    """Handles signals. Each one is stored with its effect on every table, so that a restart
    continues with it."""

    reader: RowMapper
    jobs: SnapshotJobs
    pending: PendingChunks
    rereads: Rereads

    async def fulfil(self, control: Control) -> None:
        """Handles a signal; a refused one is shown in the status, and is not tried again."""
        if control.kind != KIND:
            raise SourceRejected("the source does not support this signal", kind=control.kind)
        try:
            await self._fulfil(control)
        except SourceRejected as error:
            self._taken_up(
                control, REFUSED, Diagnostic(error.statement, error.hint, is_fatal=False)
            )
            raise
        self._taken_up(control, control.options.get(ACTION, START), None)

    def _taken_up(self, control: Control, how: str, finding: Diagnostic | None) -> None:
        self.reader.context.report(Remark(KIND, finding))
        self.pending.notes[f"{CONTROL}{control.id}"] = how
        self.pending.stir()

    async def _fulfil(self, control: Control) -> None:
        name = "" if control.table is None else str(control.table)
        if name and name not in self.jobs.tables:
            raise SourceRejected(
                "the pipeline does not capture this table",
                table=name,
                hint="add it to `tables` of the source, or let headwater status say why it is left"
                " out",
            )
        action = control.options.get(ACTION, START)
        match action:
            case "start":
                await self._start(control, name)
            case "pause":
                for job in self._choose(name):
                    self.pending.pause(job, is_paused=True)
            case "resume":
                for job in self._choose(name):
                    self._resume(job, is_named=bool(name))
            case "stop":
                for job in self._choose(name):
                    (self.rereads.stop if job.progress.reread else self.pending.finish)(job)
            case _:
                raise SourceRejected("a snapshot does not support this signal", action=action)

    def _choose(self, name: str) -> list[SnapshotJob]:
        if not name:
            return self.jobs.all()
        job = self.jobs.find(name)
        return [] if job is None else [job]

    def _resume(self, job: SnapshotJob, *, is_named: bool) -> None:
        """Resumes; for a held table its name is enough."""
        if job.held and is_named:
            self.rereads.permit(job)
        else:
            self.pending.pause(job, is_paused=False)

    async def _start(self, control: Control, name: str) -> None:
        where = control.options.get(WHERE, "")
        tables = [self.jobs.tables[name]] if name else list(self.jobs.tables.values())
        for table in tables:
            running = self.jobs.of(table)
            if running is not None and running.progress.reread and not running.is_started:
                self._permit(running, where)
                continue
            if running is not None and name and running.progress.signal != control.id:
                raise SourceRejected(
                    "the table is being read already",
                    table=name,
                    hint=f"headwater snapshot stop {self.reader.context.pipeline}/{name}",
                )
            if running is not None:
                continue
            if where:
                await self._check(table, where)
            job = self.jobs.add(table, TableSnapshotProgress(signal=control.id, where=where))
            self.pending.notes[job.part] = job.progress.text()

    def _permit(self, job: SnapshotJob, where: str) -> None:
        if where:
            raise SourceRejected(
                "a table that differs from its source can only be read as a whole",
                table=str(job.table.table),
                why=job.progress.reread,
                hint="leave --where out",
            )
        self.rereads.permit(job)

    async def _check(self, table: CapturedTable, where: str) -> None:
        """Checks the condition before it is stored, because an invalid one would end every run of
        the source."""
        name = str(table.table)
        if not table.schema.key:
            raise SourceRejected(
                "a table without a key can only be read as a whole",
                table=name,
                hint="set its key under `keys` of the source",
            )
        query = sql.SQL("EXPLAIN SELECT 1 FROM {} WHERE (\n{}\n)").format(
            sql.Identifier(*table.table), verbatim(where)
        )
        connection = await self.reader.connect()
        try:
            with in_our_words("the condition cannot be used", table=name):
                await connection.execute(query, prepare=True)  # takes one statement only
        finally:
            await connection.close()
