"""Rows that are read beside the stream and the stream itself end as the table, whatever happens."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.connectors.postgres.server.lsn import EPOCH
from headwater.connectors.postgres.snapshot import deduplication_window
from headwater.connectors.postgres.snapshot.deduplication_window import (
    DeduplicationWindow,
    StreamedKeys,
)
from headwater.connectors.postgres.snapshot.progress import (
    Chunk,
    LeafProgress,
    TableSnapshotProgress,
    chunks_of,
)
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from tests.connectors.postgres.snapshot.simulated_table import (
    PAGES,
    SimulatedTable,
    Transaction,
    Version,
)

pytestmark = pytest.mark.simulation

SCHEMA = TableSchema(
    TableId("public", "t"),
    (Column("id", pa.int64(), is_nullable=False), Column("value", pa.int64())),
    ("id",),
)
STEPS, ENOUGH = 300, 100_000


class Log:
    """Everything that was emitted, folded. Values of a key rise with each change, so that one
    which is older than what is there already is seen."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.reads: list[int] = []
        self.newest: dict[int, int] = {}

    def take(self, changes: TableChanges) -> None:
        for row, kind in zip(changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True):
            if kind == Operation.DELETE:
                self.rows.pop(row["id"], None)
            else:
                assert row["value"] >= self.newest.get(row["id"], 0), "never back in time"
                self.rows[row["id"]] = self.newest[row["id"]] = row["value"]


class Follower:
    """What the source does: streams at its own pace, and reads chunks beside."""

    def __init__(
        self, table: SimulatedTable, log: Log, *, at: int, progress: TableSnapshotProgress
    ) -> None:
        self.table, self.log, self.at, self.progress = table, log, at, progress
        self.watch = StreamedKeys()
        self.begin()
        self.todo: list[Chunk] = []
        self.window: DeduplicationWindow | None = None
        self.chunk: Chunk | None = None
        self.read: list[Version] | None = None
        self.closes_at = 0

    def begin(self) -> None:
        """Before the first reading, and again after a rest."""
        self.watch.begin()
        self.writers = self.table.writers()

    def step(self, random: Random) -> None:
        if self.watch.is_on and random.random() < 0.01:
            self.watch.rest()
        elif not self.watch.is_on and random.random() < 0.1:
            self.begin()
        elif random.random() < 0.5:
            self.stream()
        else:
            self.advance()

    def stream(self) -> None:
        if self.at == len(self.table.stream):
            return
        transaction = self.table.stream[self.at]
        self.at += 1
        changes = changes_of(transaction)
        if len(changes):
            xids = np.full(len(changes), transaction.xid % EPOCH, np.int64)
            self.watch.saw(changes, xids)
            self.log.take(changes)

    def advance(self) -> None:
        self.writers &= self.table.writers()
        may_begin = self.watch.is_on and not self.writers
        if self.progress.is_read or (self.window is None and not may_begin):
            return
        if not self.progress.has_begun:
            self.progress = TableSnapshotProgress(
                self.table.snapshot(), (LeafProgress(1, 1, PAGES),)
            )
        elif self.window is None:
            self.todo = self.todo or chunks_of(self.progress.leaves, pages_each=[1])
            self.chunk, self.window = self.todo.pop(0), self.watch.open()
        elif self.read is None:
            self._read(self.window)
        elif self.at >= self.closes_at:
            self._hand_on(self.window, self.read)

    def _read(self, window: DeduplicationWindow) -> None:
        snapshot = self.table.snapshot()
        assert self.chunk is not None, "a window is opened for a chunk"
        start, end = self.chunk.pages
        if window.is_usable_under(snapshot):
            self.closes_at = len(self.table.stream)
            seen = self.table.seen_by(snapshot)
            self.read = [each for each in seen if start <= each.page < end and self._is_old(each)]
        else:
            self.watch.close(window)
            self.todo.insert(0, self.chunk)
            self.window = None

    def _is_old(self, version: Version) -> bool:
        """What `View.condition_since` says in SQL."""
        since = self.progress.snapshot
        assert since is not None, "the snapshot has begun"
        if not since.is_of_first_epoch:
            return True
        return version.xmin < since.xmax and version.xmin not in since.running

    def _hand_on(self, window: DeduplicationWindow, read: list[Version]) -> None:
        assert self.chunk is not None, "a window is opened for a chunk"
        self.watch.close(window)
        if window.is_overrun:
            self.todo.insert(0, self.chunk)
            self.window = self.read = None
            return
        rows = rows_of([(each.key, each.value) for each in read])
        left = window.drop_streamed(rows)
        self.log.reads += left.column("id").to_pylist()
        self.log.take(changes(left, [Operation.READ] * left.num_rows))
        self.progress = self.progress.with_read(1, self.chunk.pages, rows=len(read))
        self.window = self.read = None


@pytest.mark.parametrize("seed", range(150))
def test_the_fold_of_rows_and_changes_is_the_table(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    remembered = random.choice([40, deduplication_window.TOUCHED_BYTES_MAX])
    monkeypatch.setattr(deduplication_window, "TOUCHED_BYTES_MAX", remembered)
    near_wrap = random.random() < 0.3
    table = SimulatedTable(random, first_xid=EPOCH - 40 if near_wrap else 1_000)
    for _ in range(random.randrange(200)):
        table.step()
    log = Log()
    follower = begun(table, log, random)

    for _ in range(STEPS):
        if random.random() < 0.6:
            table.step()
        else:
            follower.step(random)
        if random.random() < 0.02:  # a kill: what is not in the position is gone
            follower = Follower(
                table,
                log,
                at=follower.at,
                progress=TableSnapshotProgress.parse(follower.progress.text()),
            )
    table.settle()
    drain(follower, random)

    assert log.rows == table.rows()
    if not near_wrap:
        assert len(log.reads) == len(set(log.reads)), "no row is read twice"


def begun(table: SimulatedTable, log: Log, random: Random) -> Follower:
    """Either a slot was made, or the table was added to a publication that is streamed."""
    if random.random() < 0.5:
        table.settle()  # a slot waits for whoever writes
        progress = TableSnapshotProgress(table.snapshot(), (LeafProgress(1, 1, PAGES),))
        return Follower(table, log, at=len(table.stream), progress=progress)
    at = random.randint(max(0, len(table.stream) - 3), len(table.stream))
    for transaction in [*table.stream, *table.running.values()]:
        for change in transaction.changes:
            change.is_published = False
    return Follower(table, log, at=at, progress=TableSnapshotProgress())


def drain(follower: Follower, random: Random) -> None:
    for _ in range(ENOUGH):
        if follower.progress.is_read and follower.at == len(follower.table.stream):
            return
        follower.step(random)
    raise AssertionError("it comes to an end")


def changes_of(transaction: Transaction) -> TableChanges:
    told = [each for each in transaction.changes if each.is_published]
    rows = rows_of([(each.key, each.value) for each in told])
    kinds = [Operation.DELETE if each.value is None else Operation.UPDATE for each in told]
    return changes(rows, kinds)


def rows_of(values: list[tuple[int, int | None]]) -> pa.RecordBatch:
    columns = [
        pa.array([key for key, _ in values], pa.int64()),
        pa.array([value for _, value in values], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def changes(rows: pa.RecordBatch, kinds: list[Operation]) -> TableChanges:
    return TableChanges(SCHEMA, rows, pa.array(kinds, pa.uint8()), {"ts_us": 0})
