"""Tables whose rows are to be read beside the stream, and how far each has come."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.schema_history.table_definition import LOST_KEY
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize
from headwater.connectors.postgres.snapshot.deduplication_window import StreamedKeys
from headwater.connectors.postgres.snapshot.keyless_buffer import KeylessBuffer
from headwater.connectors.postgres.snapshot.progress import (
    Chunk,
    LeafProgress,
    TableSnapshotProgress,
    chunks_of,
    part_of,
)
from headwater.connectors.postgres.snapshot.reread_estimate import RereadEstimate
from headwater.connectors.postgres.snapshot.visibility import PgSnapshot
from headwater.connectors.source import SnapshotProgress
from headwater.core_log.model.changes import Positions


@dataclass(slots=True)
class SnapshotJob:
    """One table's."""

    table: CapturedTable
    ledger: TableSnapshotProgress
    watch: StreamedKeys = field(default_factory=StreamedKeys)
    sizes: dict[int, TableSize] = field(default_factory=dict)
    """By the number of the leaf."""
    todo: deque[Chunk] = field(default_factory=deque)
    under_way: list[Chunk] = field(default_factory=list)
    """Being read, or read and not handed on."""
    hold: KeylessBuffer | None = None
    """Of a table without a key, from just before it is read until its rows are handed on."""
    is_prepared: bool = False
    is_taken: bool = False
    """Somebody prepares it, or reads it as a whole."""
    is_over: bool = False
    is_started: bool = False
    """The log knows from where on rows are those of a reading that replaces the table."""
    due_ms: int = 0
    """Not to be started before."""
    estimate: RereadEstimate | None = None
    """Of a table that is to be read again, just before it is."""
    is_estimated: bool = False
    """Somebody looks that up, or has."""
    held: str = ""
    """Why it is not read again before a person says so."""

    def __post_init__(self) -> None:
        self.is_started = not self.ledger.reread or self.ledger.has_begun

    @property
    def part(self) -> str:
        return part_of(self.table.table)

    @property
    def has_key(self) -> bool:
        return bool(self.table.schema.key)

    @property
    def awaits_key(self) -> bool:
        """It is not to be read again before its table, which lost its key, has one."""
        return self.ledger.reread == LOST_KEY and not self.has_key

    @property
    def wants_work(self) -> bool:
        if self.is_over or self.is_taken or self.ledger.is_paused or not self.is_started:
            return False
        return bool(self.todo) or not self.is_prepared

    def begin(self, snapshot: PgSnapshot, sizes: Sequence[TableSize]) -> None:
        """From the first page on."""
        leaves = tuple(size.leaf for size in sizes)
        self.ledger = replace(self.ledger, snapshot=snapshot, leaves=leaves, rows=0)

    def begin_anew(self) -> None:
        """What was read, and is being read, means nothing any more."""
        self.ledger = replace(self.ledger, snapshot=None, leaves=())
        self.is_started = not self.ledger.reread
        self.estimate, self.is_estimated = None, False
        self.let_go()

    def let_go(self) -> None:
        """What is being read is not to be handed on."""
        self.todo.clear()
        self.under_way.clear()
        self.is_prepared = False
        self.watch.rest()

    def put_back(self, chunk: Chunk) -> None:
        """It is to be read again."""
        if chunk in self.under_way:
            self.under_way.remove(chunk)
            self.todo.appendleft(chunk)

    def fits(self, sizes: Sequence[TableSize]) -> bool:
        """Whether the places that were read still mean what they meant."""
        now = {size.leaf.oid: size.leaf.filenode for size in sizes}
        return self.ledger.has_begun and now == {
            leaf.oid: leaf.filenode for leaf in self.ledger.leaves
        }

    def prepare(self, sizes: Sequence[TableSize], *, chunk_rows: int) -> None:
        self.sizes = {size.leaf.oid: size for size in sizes}
        leaves = [leaf for leaf in self.ledger.leaves if leaf.oid in self.sizes]
        pages = [self.sizes[leaf.oid].chunk_pages(chunk_rows) for leaf in leaves]
        self.todo = deque(chunks_of(leaves, pages_each=pages))
        self.is_prepared = True

    def finish(self) -> tuple[str, str]:
        """The part of the position that says so."""
        self.is_over = True
        self.ledger = self.ledger.finish()
        return self.part, self.ledger.text()

    def progress(self) -> SnapshotProgress:
        leaves: Sequence[LeafProgress] = self.ledger.leaves
        sizes = [self.sizes[leaf.oid] for leaf in leaves if leaf.oid in self.sizes]
        pages = sum(leaf.pages for leaf in leaves)
        read = sum(leaf.pages_read for leaf in leaves)
        bytes = sum(size.bytes for size in sizes)
        rows = sum(size.rows_expected for size in sizes)
        return SnapshotProgress(
            self.table.table,
            self.ledger.rows,
            max(rows, self.ledger.rows) or None,
            bytes * read // pages if pages else None,
            bytes or None,
            is_done=self.ledger.is_done,
        )


class SnapshotJobs:
    """Those that are not over, in the order in which they are to be done."""

    def __init__(
        self, tables: Sequence[CapturedTable], positions: Positions, *, reads_new: bool
    ) -> None:
        """`reads_new`: whether tables of which nobody wrote anything down are to be read."""
        self.tables = {str(each.table): each for each in tables}
        self._jobs: dict[int, SnapshotJob] = {}
        self._over: dict[int, TableSnapshotProgress] = {}
        for table in tables:
            said = positions.get(part_of(table.table))
            ledger = TableSnapshotProgress() if said is None else TableSnapshotProgress.parse(said)
            if ledger.is_done:
                self._over[table.oid] = ledger
            elif reads_new or said is not None:
                self.add(table, ledger)

    def add(self, table: CapturedTable, ledger: TableSnapshotProgress) -> SnapshotJob:
        job = self._jobs[table.oid] = SnapshotJob(table, replace(ledger, oid=table.oid))
        self.tables[str(table.table)] = table
        return job

    def hold(self, job: SnapshotJob) -> None:
        """Nobody can read the table until it is added anew."""
        job.is_over = True
        del self.tables[str(job.table.table)]

    def of(self, table: CapturedTable) -> SnapshotJob | None:
        job = self._jobs.get(table.oid)
        return None if job is None or job.is_over else job

    def find(self, name: str) -> SnapshotJob | None:
        table = self.tables.get(name)
        return None if table is None else self.of(table)

    def ledger_of(self, oid: int) -> TableSnapshotProgress:
        """Of a table, be it read or not."""
        job = self._jobs.get(oid)
        return self._over.get(oid, TableSnapshotProgress(oid=oid)) if job is None else job.ledger

    def all(self) -> list[SnapshotJob]:
        self._over |= {oid: job.ledger for oid, job in self._jobs.items() if job.is_over}
        self._jobs = {oid: job for oid, job in self._jobs.items() if not job.is_over}
        return list(self._jobs.values())

    def next(self) -> SnapshotJob | None:
        return next((job for job in self._jobs.values() if job.wants_work), None)
