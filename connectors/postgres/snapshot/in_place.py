"""Schema changes that the log follows by the ids of columns: one row brings it the new form."""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.table_definition import TableForm
from headwater.connectors.postgres.server.connection import PgConnection, is_of_rows
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize, sizes_of
from headwater.connectors.postgres.snapshot.deduplication_window import (
    DeduplicationWindow,
    StreamedKeys,
)
from headwater.connectors.postgres.snapshot.jobs import SnapshotJobs
from headwater.connectors.postgres.snapshot.pending_chunks import PendingChunks
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper, statement_of
from headwater.connectors.postgres.snapshot.transaction import (
    SnapshotTransaction,
    flush,
    viewing,
    writers_over,
)
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import ChangeBatch, Operation, TableChanges
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)

AGAIN_S = 0.1
GONE = {"42P01", "3F000"}
"""The table or its schema no longer exists."""
WRITES = pa.array([Operation.INSERT, Operation.UPDATE], pa.uint8())


@dataclass(slots=True, eq=False)
class _ReadRow:
    """A row that was read, or none of an empty table."""

    table: CapturedTable
    rows: pa.RecordBatch | None
    window: DeduplicationWindow
    view: SnapshotTransaction


@dataclass(slots=True, eq=False)
class _Change:
    """The schema change of one table."""

    table: CapturedTable
    after: int
    watch: StreamedKeys = field(default_factory=StreamedKeys)
    reading: asyncio.Task[None] | None = None
    found: _ReadRow | None = None
    streamed: pa.Schema | None = None
    """The columns of the last row that was streamed since the reading began."""


@dataclass(slots=True)
class InPlaceChanges:
    """Tables of which the log needs a row of the new form, so that targets have it too. Nothing
    limits it: neither the hours of snapshots, nor a pause."""

    reader: RowMapper
    catalog: Catalog
    jobs: SnapshotJobs
    pending: PendingChunks
    unannounced: set[TableId]
    """Tables whose newest form the log may lack, for the one who compares forms."""
    form_of: Callable[[TableId], TableForm | None]
    """The form that was seen last."""
    read_whole: Callable[[CapturedTable], None]
    """Reads a table again of which no row could be read."""
    look_soon: Callable[[], None] = lambda: None
    """Asks for the forms to be looked up."""
    failure: BaseException | None = None
    """The failure of a reading, raised by the next call of `ready`."""
    _changes: dict[int, _Change] = field(default_factory=dict)

    def begin(self, table: CapturedTable, progress: TableSnapshotProgress) -> None:
        self.forget(table)
        self.jobs.store(table.oid, progress)
        self.pending.notes[part_of(table.table)] = progress.text()
        self.restore(table, progress)
        logger.info("%s follows a schema change in place: %s", table.table, progress.follows)

    def restore(self, table: CapturedTable, progress: TableSnapshotProgress) -> None:
        """Takes up a change that is stored already."""
        self._changes[table.oid] = _Change(table, progress.after)
        self.unannounced.add(table.table)
        self.pending.stir()

    def forget(self, table: CapturedTable) -> None:
        """Drops the change of a table that is read again as a whole."""
        change = self._changes.pop(table.oid, None)
        self.unannounced.discard(table.table)
        if change is not None and change.reading is not None:
            change.reading.cancel()

    @property
    def is_empty(self) -> bool:
        return not self._changes

    @property
    def awaits(self) -> list[int]:
        """Positions of the stream at which rows can be read, or emitted."""
        return [
            change.after if change.found is None else change.found.view.awaits
            for change in self._changes.values()
            if change.reading is None or change.found is not None
        ]

    def saw(self, changes: TableChanges, xids: Int64Array) -> None:
        change = self._changes.get(changes.schema.id)
        if change is None:
            return
        change.watch.saw(changes, xids)
        if pc.any(pc.is_in(changes.operations, value_set=WRITES)).as_py():
            change.streamed = changes.schema.arrow

    def forget_rows(self, table: TableId) -> None:
        """Forgets the row of a truncated table."""
        for change in self._changes.values():
            if change.table.table == table:
                self._read_again(change)

    def ready(self, lsn: int) -> ChangeBatch | None:
        """Returns the next row that can be emitted at that position of the stream."""
        if self.failure is not None:
            raise self.failure
        for change in [*self._changes.values()]:
            found = change.found
            if found is None and change.reading is None and lsn >= change.after:
                self._begin_reading(change)
            if found is None or lsn < found.view.awaits:
                continue
            rows = found.rows
            if rows is not None:
                form = rows.schema
                rows = None if found.window.is_overrun else found.window.drop_streamed(rows)
                is_lost = rows is None or not rows.num_rows
                if is_lost and change.streamed != form:
                    self._read_again(change)
                    continue
            return self._end(change, found, rows)
        return None

    async def close(self) -> None:
        for change in self._changes.values():
            if change.reading is not None:
                await let_go(change.reading)

    def _end(self, change: _Change, found: _ReadRow, rows: pa.RecordBatch | None) -> ChangeBatch:
        table = change.table
        progress = self.jobs.progress_of(table.oid).end_following()
        self.jobs.store(table.oid, progress)
        self.forget(table)
        tables: tuple[TableChanges, ...] = ()
        if rows is not None and rows.num_rows:
            changes = self.reader.changes(
                found.table, rows, found.view.moment, snapshot="incremental"
            )
            tables = (changes,)
        return ChangeBatch(tables, {part_of(table.table): progress.text()})

    def _read_again(self, change: _Change) -> None:
        if change.reading is not None:
            change.reading.cancel()
        change.watch, change.found, change.reading = StreamedKeys(), None, None
        change.streamed = None
        self.pending.stir()

    def _begin_reading(self, change: _Change) -> None:
        change.watch.begin()
        change.reading = asyncio.ensure_future(self._read(change))
        change.reading.add_done_callback(self._has_read)

    def _has_read(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self.failure = error
        self.pending.stir()

    async def _read(self, change: _Change) -> None:
        connection = await self.reader.connect()
        try:
            oid, table = change.table.oid, change.table.table
            sizes = await sizes_of(connection, [oid])
            await writers_over(connection, table, [oid, *(size.leaf.oid for size in sizes)])
            while (found := await self._find(connection, change)) is None:
                self.look_soon()
                await asyncio.sleep(AGAIN_S)
            change.found = found
        except HeadwaterError as error:
            if is_of_rows(error):
                self._changes.pop(change.table.oid, None)
                self.unannounced.discard(change.table.table)
                self.read_whole(change.table)
                return
            if error.facts.get("sqlstate") not in GONE:
                raise
            self._changes.pop(change.table.oid, None)  # the next start finds what became of it
        finally:
            await connection.close()

    async def _find(self, connection: PgConnection, change: _Change) -> _ReadRow | None:
        """Returns a row; None if it must be looked for again, because nobody knows the form that
        the table has now."""
        oid, found = change.table.oid, None
        sizes: Collection[TableSize | None] = await sizes_of(connection, [oid]) or [None]
        for size in sizes:
            found = await self._row_of(connection, change, size)
            if found is None or found.rows is not None:
                break
        await flush(connection)
        return found

    async def _row_of(
        self, connection: PgConnection, change: _Change, size: TableSize | None
    ) -> _ReadRow | None:
        table, window = change.table.table, change.watch.open()
        leaf = table if size is None else TableId(size.namespace, size.name)
        rows: list[pa.RecordBatch] = []
        async with viewing(connection, [*dict.fromkeys([table, leaf])]) as view:
            forms = await table_definition.look(connection, [change.table])
            captured = await self.catalog.tables_of(connection, [change.table.oid])
            is_known = bool(captured) and forms.get(table) == self.form_of(table)
            is_usable = window.is_usable_under(view.snapshot)
            if is_known and is_usable and size is not None:
                pages = (0, max(size.leaf.pages, 1))
                statement = statement_of(captured[0], size, pages, rows_max=1)
                pieces = self.reader.pieces(self.reader.copier(connection), captured[0], statement)
                rows = [piece async for piece in pieces]
        if not (is_known and is_usable):
            change.watch.close(window)
            return None
        if not rows:
            change.watch.close(window)
        return _ReadRow(captured[0], rows[0] if rows else None, window, view)
