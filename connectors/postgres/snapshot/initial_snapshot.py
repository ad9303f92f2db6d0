"""Reads all tables at one moment, over several connections in parallel."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.server.connection import (
    CHANGED,
    PgConnection,
    broken_off,
    in_our_words,
    is_of_rows,
)
from headwater.connectors.postgres.server.lsn import EPOCH, PgSnapshot
from headwater.connectors.postgres.slot.replication_slot import CreatedSlot
from headwater.connectors.postgres.snapshot.chunk_planner import (
    TableSize,
    check_unchanged,
    sizes_of,
    table_changed_error,
)
from headwater.connectors.postgres.snapshot.copy import Copier
from headwater.connectors.postgres.snapshot.progress import (
    Pages,
    TableSnapshotProgress,
    chunks_of,
    part_of,
)
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, SnapshotPoint, statement_of
from headwater.connectors.source import SnapshotProgress
from headwater.core_log.client.gather import let_go, together
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import ChangeBatch, TableChanges

logger = logging.getLogger(__name__)

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
NOW = "SELECT pg_catalog.pg_current_snapshot()::text, (extract(epoch FROM now()) * 1000000)::int8"
LOCK_MS = 5_000
"""Lock timeout. An ALTER TABLE waits for our connections that have read the table, and blocks the
others; after all of them time out, the rest is read beside the stream."""
BATCHES_MAX = 1
"""Batches that were read and not emitted yet, in addition to one per connection."""


async def initial_batches(
    reader: RowMapper,
    created: CreatedSlot,
    tables: Sequence[CapturedTable],
    questions: PgConnection,
    *,
    goes_on: Callable[[], bool],
) -> AsyncGenerator[ChangeBatch, None]:
    """Yields batches. The first one is empty and names the work; after it the connection that
    created the slot is no longer needed. Each other batch is a chunk with its progress; a chunk
    that is larger than expected comes as several batches, and the last has the progress.

    `questions` is a connection with a view of the present. `goes_on` says whether to read another
    chunk; the rest is left to an incremental snapshot.
    """
    assert created.snapshot is not None, "the slot was made with a snapshot to be read under"
    async with AsyncExitStack() as stack:
        wanted = range(reader.settings.snapshot.parallel)
        connections = await together(_open(reader, created.snapshot, stack) for _ in wanted)
        plan = await _Plan.create(reader, connections[0], created, tables, questions, goes_on)
        yield ChangeBatch((), plan.positions())
        copiers = [reader.copier(each, is_only_for_copies=True) for each in connections]
        for copier in copiers:
            stack.callback(copier.close)
        async with aclosing(plan.read(copiers)) as batches:
            try:
                async for batch in batches:
                    yield batch
            except SourceRejected as error:
                if is_of_rows(error):
                    raise broken_off(error) from None
                if error.facts.get("sqlstate") not in CHANGED:
                    raise
                raise table_changed_error(error.facts.get("table")) from None


async def _open(reader: RowMapper, snapshot: str, stack: AsyncExitStack) -> PgConnection:
    connection = await reader.connect()
    stack.push_async_callback(connection.close)
    await take_on(connection, snapshot)
    with in_our_words("the locks that rows are read under cannot be bounded"):
        await connection.execute(f"SET lock_timeout = {LOCK_MS}".encode())
    return connection


async def take_on(connection: PgConnection, snapshot: str) -> None:
    with in_our_words("the slot's snapshot cannot be taken on"):
        await connection.execute(BEGIN)
        command = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot))
        await connection.execute(command)


@dataclass(slots=True)
class _Table:
    """A table that is being read."""

    captured: CapturedTable
    progress: TableSnapshotProgress
    rows_expected: int
    where: str
    bytes_per_page: float
    chunks_left: int = 0
    rows_seen: int = 0
    """Rows emitted so far, including a chunk that is not complete."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A chunk with its place."""

    table: _Table
    size: TableSize
    pages: Pages


@dataclass(slots=True)
class _Plan:
    reader: RowMapper
    moment: SnapshotPoint
    tables: list[_Table]
    tasks: deque[_Task]
    questions: PgConnection
    goes_on: Callable[[], bool]
    _unchanged: set[int] = field(default_factory=set)
    """Leaves that were checked, and are locked by now."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ready: "asyncio.Queue[ChangeBatch | None]" = field(default_factory=asyncio.Queue)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BATCHES_MAX))
    _rows_seen: int = 0

    @classmethod
    async def create(
        cls,
        reader: RowMapper,
        connection: PgConnection,
        created: CreatedSlot,
        tables: Sequence[CapturedTable],
        questions: PgConnection,
        goes_on: Callable[[], bool],
    ) -> "_Plan":
        with in_our_words("the snapshot cannot be read"):
            [[text, at_us]] = await (await connection.execute(NOW)).fetchall()
        snapshot = PgSnapshot.parse(text)
        moment = SnapshotPoint(created.consistent_lsn, snapshot.xmax % EPOCH, at_us)
        sizes: dict[int, list[TableSize]] = {}
        for size in await sizes_of(connection, [each.oid for each in tables]):
            sizes.setdefault(size.root, []).append(size)
        found, tasks = list[_Table](), deque[_Task]()
        for captured in tables:
            leaves = sizes.get(captured.oid, [])
            pages = sum(size.leaf.pages for size in leaves)
            table = _Table(
                captured,
                TableSnapshotProgress(
                    snapshot,
                    tuple(size.leaf for size in leaves),
                    oid=captured.oid,
                    has_ids=True,
                ),
                sum(size.rows_expected for size in leaves),
                reader.where_of(captured),
                sum(size.bytes for size in leaves) / max(1, pages),
            )
            found.append(table)
            by_oid = {size.leaf.oid: size for size in leaves}
            each = [size.chunk_pages(reader.settings.snapshot.chunk_rows) for size in leaves]
            for chunk in chunks_of(table.progress.leaves, pages_each=each):
                tasks.append(_Task(table, by_oid[chunk.leaf.oid], chunk.pages))
                table.chunks_left += 1
        return cls(reader, moment, found, tasks, questions, goes_on)

    def positions(self) -> dict[str, str]:
        """Returns the positions; tables without pages are complete."""
        return dict(self._position(table) for table in self.tables)

    async def read(self, copiers: Sequence[Copier]) -> AsyncGenerator[ChangeBatch, None]:
        for table in self.tables:
            self._tell(table)
        working = asyncio.ensure_future(together(self._work(copier) for copier in copiers))
        working.add_done_callback(lambda _: self._ready.put_nowait(None))  # in all cases
        try:
            while (batch := await self._ready.get()) is not None:
                self._room.release()
                yield batch
            await working
        finally:
            await let_go(working)

    async def _work(self, copier: Copier) -> None:
        while self.tasks and self.goes_on():
            task = self.tasks.popleft()
            statement = statement_of(
                task.table.captured, task.size, task.pages, where=task.table.where
            )
            pieces = self.reader.pieces(copier, task.table.captured, statement)
            async with aclosing(pieces):
                try:
                    first = await anext(pieces, None)
                    second = None if first is None else await anext(pieces, None)
                except SourceRejected as error:  # a column may have another type by now
                    await self._check_unchanged(task)
                    if not is_of_rows(error):
                        raise
                    self._leave(task.table, error)
                    return  # its transaction is over
                await self._check_unchanged(task)
                async with self._turn:  # batches of one chunk are not mixed with others
                    while second is not None:
                        assert first is not None, "the last piece is handed over below"
                        await self._hand_over(task, first, is_last=False)
                        first, second = second, await anext(pieces, None)
                    await self._hand_over(task, first, is_last=True)

    def _leave(self, table: _Table, error: SourceRejected) -> None:
        """Leaves the rest of a table that cannot be read to the reading beside the stream."""
        logger.warning("%s is read beside the stream: %s", table.captured.table, error.statement)
        self.tasks = deque(each for each in self.tasks if each.table is not table)

    async def _check_unchanged(self, task: _Task) -> None:
        leaf = task.size.leaf
        if leaf.oid not in self._unchanged:
            await check_unchanged(self.questions, task.table.captured, leaf)
            self._unchanged.add(leaf.oid)

    async def _hand_over(self, task: _Task, rows: pa.RecordBatch | None, *, is_last: bool) -> None:
        table = task.table
        count = 0 if rows is None else rows.num_rows
        if is_last:
            table.chunks_left -= 1
        changes: tuple[TableChanges, ...] = ()
        if rows is not None and count:
            words = self._words(table, count, is_last=is_last)
            changes = (self.reader.changes(table.captured, rows, self.moment, snapshot=words),)
        table.rows_seen += count
        self._rows_seen += count
        positions: dict[str, str] = {}
        if is_last:
            read = table.rows_seen - table.progress.rows
            table.progress = table.progress.with_read(task.size.leaf.oid, task.pages, rows=read)
            positions = dict([self._position(table)])
        await self._room.acquire()
        self._ready.put_nowait(ChangeBatch(changes, positions))
        self._tell(table)

    def _position(self, table: _Table) -> tuple[str, str]:
        progress = table.progress.finish() if table.progress.is_read else table.progress
        return part_of(table.captured.table), progress.text()

    def _words(self, table: _Table, count: int, *, is_last: bool) -> pa.StringArray | str:
        """Returns Debezium's values of `snapshot`: for the first and last row of all, the first and
        last row of a table, and others."""
        begins = not table.rows_seen
        ends = is_last and not table.chunks_left
        if not (begins or ends):
            return "true"
        words = np.full(count, "true", object)
        if begins:
            words[0] = "first_in_data_collection" if self._rows_seen else "first"
        if ends:
            is_end = not any(each.chunks_left for each in self.tables)
            words[-1] = "last" if is_end else "last_in_data_collection"
        return pa.array(words, pa.string())

    def _tell(self, table: _Table) -> None:
        progress, each = table.progress, table.bytes_per_page
        self.reader.context.report(
            SnapshotProgress(
                table.captured.table,
                table.rows_seen,
                max(table.rows_expected, table.rows_seen) or None,
                round(sum(leaf.pages_read for leaf in progress.leaves) * each),
                round(sum(leaf.pages for leaf in progress.leaves) * each),
                is_done=progress.is_read,
            )
        )
