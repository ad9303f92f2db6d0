"""Tables to read beside the stream, with the progress of each."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.schema_history.table_definition import LOST_KEY
from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize
from headwater.connectors.postgres.snapshot.deduplication_window import KeylessBuffer, StreamedKeys
from headwater.connectors.postgres.snapshot.progress import (
    Chunk,
    LeafProgress,
    TableSnapshotProgress,
    chunks_of,
    part_of,
)
from headwater.connectors.snapshot.reread_limits import RereadEstimate
from headwater.connectors.source import SnapshotProgress
from headwater.core_log.model.changes import Positions


@dataclass(slots=True)
class SnapshotJob:
    """The job of one table."""

    table: CapturedTable
    progress: TableSnapshotProgress
    watch: StreamedKeys = field(default_factory=StreamedKeys)
    sizes: dict[int, TableSize] = field(default_factory=dict)
    """Sizes by the number of the leaf."""
    todo: deque[Chunk] = field(default_factory=deque)
    under_way: list[Chunk] = field(default_factory=list)
    """Chunks that are being read, or read and not emitted yet."""
    hold: KeylessBuffer | None = None
    """Buffer for a table without a key, from just before it is read until its rows are emitted."""
    is_prepared: bool = False
    is_taken: bool = False
    """A reader prepares it, or reads it as a whole."""
    is_over: bool = False
    is_started: bool = False
    """The log knows where the rows of the re-read begin."""
    due_ms: int = 0
    """Not to be started before this time."""
    estimate: RereadEstimate | None = None
    """Estimate of a re-read, made just before it starts."""
    is_estimated: bool = False
    """The estimate is made, or being made."""
    is_unreadable: bool = False
    """The server could not read its rows; it is tried again later."""
    held: str = ""
    """The reason why a re-read waits for a person."""

    def __post_init__(self) -> None:
        self.is_started = not self.progress.reread or self.progress.has_begun

    @property
    def part(self) -> str:
        return part_of(self.table.table)

    @property
    def has_key(self) -> bool:
        return bool(self.table.schema.key)

    @property
    def awaits_key(self) -> bool:
        """Whether its re-read waits until its table, which lost its key, has one."""
        return self.progress.reread == LOST_KEY and not self.has_key

    @property
    def wants_work(self) -> bool:
        if self.is_over or self.is_taken or self.progress.is_paused or not self.is_started:
            return False
        if self.is_unreadable:
            return False
        return bool(self.todo) or not self.is_prepared

    def begin(self, snapshot: PgSnapshot, sizes: Sequence[TableSize]) -> None:
        """Starts from the first page."""
        leaves = tuple(size.leaf for size in sizes)
        has_ids = self.progress.has_ids or not self.progress.where
        self.progress = replace(
            self.progress, snapshot=snapshot, leaves=leaves, rows=0, has_ids=has_ids
        )

    def begin_anew(self) -> None:
        """Starts again: all rows that were read, or are being read, are obsolete."""
        self.progress = replace(self.progress, snapshot=None, leaves=())
        self.is_started = not self.progress.reread
        self.estimate, self.is_estimated = None, False
        self.let_go()

    def let_go(self) -> None:
        """Discards the rows that are being read."""
        self.todo.clear()
        self.under_way.clear()
        self.is_prepared = False
        self.watch.rest()

    def put_back(self, chunk: Chunk) -> None:
        """Puts a chunk back, to be read again."""
        if chunk in self.under_way:
            self.under_way.remove(chunk)
            self.todo.appendleft(chunk)

    def fits(self, sizes: Sequence[TableSize]) -> bool:
        """Whether the pages that were read still have the same meaning."""
        now = {size.leaf.oid: size.leaf.filenode for size in sizes}
        return self.progress.has_begun and now == {
            leaf.oid: leaf.filenode for leaf in self.progress.leaves
        }

    def prepare(self, sizes: Sequence[TableSize], *, chunk_rows: int) -> None:
        self.sizes = {size.leaf.oid: size for size in sizes}
        leaves = [leaf for leaf in self.progress.leaves if leaf.oid in self.sizes]
        pages = [self.sizes[leaf.oid].chunk_pages(chunk_rows) for leaf in leaves]
        self.todo = deque(chunks_of(leaves, pages_each=pages))
        self.is_prepared = True

    def finish(self) -> tuple[str, str]:
        """Returns the part of the position of the finished job."""
        self.is_over = True
        self.progress = self.progress.finish()
        return self.part, self.progress.text()

    def snapshot_progress(self) -> SnapshotProgress:
        leaves: Sequence[LeafProgress] = self.progress.leaves
        sizes = [self.sizes[leaf.oid] for leaf in leaves if leaf.oid in self.sizes]
        pages = sum(leaf.pages for leaf in leaves)
        read = sum(leaf.pages_read for leaf in leaves)
        bytes = sum(size.bytes for size in sizes)
        rows = sum(size.rows_expected for size in sizes)
        return SnapshotProgress(
            self.table.table,
            self.progress.rows,
            max(rows, self.progress.rows) or None,
            bytes * read // pages if pages else None,
            bytes or None,
            is_done=self.progress.is_done,
        )


class SnapshotJobs:
    """The unfinished jobs, in the order of their work."""

    def __init__(
        self, tables: Sequence[CapturedTable], positions: Positions, *, reads_new: bool
    ) -> None:
        """`reads_new`: whether tables without stored progress are read."""
        self.tables = {str(each.table): each for each in tables}
        self._jobs: dict[int, SnapshotJob] = {}
        self._over: dict[int, TableSnapshotProgress] = {}
        for table in tables:
            said = positions.get(part_of(table.table))
            progress = (
                TableSnapshotProgress() if said is None else TableSnapshotProgress.parse(said)
            )
            if progress.is_done:
                self._over[table.oid] = progress
            elif reads_new or said is not None:
                self.add(table, progress)

    def add(self, table: CapturedTable, progress: TableSnapshotProgress) -> SnapshotJob:
        job = self._jobs[table.oid] = SnapshotJob(table, replace(progress, oid=table.oid))
        self.tables[str(table.table)] = table
        return job

    def hold(self, job: SnapshotJob) -> None:
        """Holds a table: no reader can read it until it is added again."""
        job.is_over = True
        del self.tables[str(job.table.table)]

    def of(self, table: CapturedTable) -> SnapshotJob | None:
        job = self._jobs.get(table.oid)
        return None if job is None or job.is_over else job

    def find(self, name: str) -> SnapshotJob | None:
        table = self.tables.get(name)
        return None if table is None else self.of(table)

    def progress_of(self, oid: int) -> TableSnapshotProgress:
        """Returns the progress of a table, complete or not."""
        job = self._jobs.get(oid)
        return self._over.get(oid, TableSnapshotProgress(oid=oid)) if job is None else job.progress

    def store(self, oid: int, progress: TableSnapshotProgress) -> None:
        """Stores the progress of a table, complete or not."""
        job = self._jobs.get(oid)
        if job is None or job.is_over:
            self._over[oid] = progress
        if job is not None:
            job.progress = progress

    def all(self) -> list[SnapshotJob]:
        self._over |= {oid: job.progress for oid, job in self._jobs.items() if job.is_over}
        self._jobs = {oid: job for oid, job in self._jobs.items() if not job.is_over}
        return list(self._jobs.values())

    def next(self) -> SnapshotJob | None:
        return next((job for job in self._jobs.values() if job.wants_work), None)
