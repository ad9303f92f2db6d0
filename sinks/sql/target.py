"""A database as target: one transaction per slice, which changes rows and offsets together."""

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.errors import (
    Fenced,
    SinkRejected,
    SinkUnavailable,
)
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.column_history import missing_value
from headwater.core_log.model.log import TopicPartition, are_later_generations
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.object_names import OP
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, SinkContext
from headwater.sinks.sql import modes
from headwater.sinks.sql.change_buffer import BufferedChanges, chunk_of
from headwater.sinks.sql.dialects.dialect import (
    Dialect,
    DriverProblem,
    RowCondition,
    is_empty,
    qualify,
    run,
)
from headwater.sinks.sql.failures import (
    RefusedRow,
    SchemaChangeFirst,
    connect_to,
    describe,
    dialect_of,
    engine_of,
    find_unlike,
    is_of_driver,
    meaning,
    refused_by,
    rejected_error,
    translate_errors,
)
from headwater.sinks.sql.modes import behind_versions, without_repeated
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.state_tables import OffsetRow, StoredColumns, StoredOffsets, check_offsets
from headwater.sinks.sql.table_evolution import SchemaAlteration, cannot_rekey
from headwater.sinks.sql.table_layout import SqlShadow, SqlTableLayout
from headwater.sinks.sql.tables import SHADOW, SqlTables

if TYPE_CHECKING:
    import sqlalchemy as sa

logger = logging.getLogger(__name__)

REJECTS_MAX = 100
"""Records found before they are reported; the next attempt finds the next ones."""


class SqlTarget:
    """A database. All of its work runs in one thread, as drivers require."""

    def __init__(
        self, settings: SqlSettings, context: SinkContext, *, shadow: SqlShadow | None = None
    ) -> None:
        self.settings, self.context, self.shadow = settings, context, shadow
        self.engine = engine_of(settings, directory=context.directory)
        self.dialect: Dialect = dialect_of(self.engine)
        self.tables = SqlTables(self.dialect, settings, context, shadow)
        self.offsets = StoredOffsets(context.pipeline, context.name)
        self.columns = StoredColumns(context.pipeline, context.name)
        self._connection: sa.Connection | None = None
        self._driver: Any = None
        self._transaction: Any = None
        self._used_ms = 0
        """When the connection was last left without a transaction."""
        self._generations: dict[TableId, int | None] = {}
        self._reported: dict[TopicPartition, AppliedOffset] = {}
        self._locked: dict[TopicPartition, OffsetRow] = {}
        self._stale: list[OffsetRow] = []
        self._fed: dict[str, tuple[TableId, int]] = {}
        self._drops: dict[TableId, Sequence[str]] = {}

    def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets:
        """Returns the stored offsets that count by the tables' own marks."""
        with translate_errors(self.dialect):
            connection = self.connect()
            try:
                self._reported = dict(self.read_committed_offsets(connection, topics))
            finally:
                connection.rollback()
        self._used_ms = self.context.clock.monotonic_ms()
        return dict(self._reported)

    def read_committed_offsets(
        self, connection: "sa.Connection", topics: Sequence[str]
    ) -> AppliedOffsets:
        """Returns the same in an open transaction."""
        self._generations.clear()
        self.tables.forget()
        rows: list[OffsetRow] = []
        if self.offsets.is_there(connection):
            rows = self.offsets.read(connection, topics)
        counting, _ = self._counting(connection, rows)
        return {partition: row.applied for partition, row in counting.items()}

    def begin(self, start: AppliedOffsets) -> None:
        """Locks the stored offsets; raises `Fenced` if they are not `start`."""
        self.leave_idle_connection()
        with translate_errors(self.dialect):
            connection = self.connect()
            self.offsets.ensure(connection)
            connection.rollback()
            self._transaction = connection.begin()
            self.dialect.begin(connection)
            self._fed, self._drops = {}, {}
            self.tables.forms.begin()
            self._lock(connection, start)

    def write(self, chunk: BufferedChanges) -> None:
        """Applies changes; raises `RecordsRejected` with those that can never be applied."""
        self._check_begun()
        schema, connection = chunk.schema, self.connect()
        layout = self._layout(schema, [part.topic for part in chunk.partitions])
        with translate_errors(self.dialect, table=str(schema.table)):
            rejected = find_unlike(layout, chunk) | dict(self.dialect.find_rejected(chunk.rows))
        if rejected:
            raise rejected_error(chunk, rejected)
        with translate_errors(self.dialect, table=str(schema.table)):
            chunk = without_repeated(self, layout, chunk)
            if not len(chunk):
                return
            chunk = behind_versions(self, layout, chunk)
        refused = self._attempt(layout, chunk)
        if refused is not None:
            self._blame(layout, chunk, refused)
        assert connection.in_transaction(), "a slice is one transaction"

    def truncate(self, changes: TableChanges) -> None:
        """Removes earlier rows; a slice yields a truncate once, for all partitions."""
        self._check_begun()
        assert changes.log_partition is not None, "changes of a slice have offsets"
        layout = self._layout(changes.schema, [changes.log_partition.topic])
        with translate_errors(self.dialect, table=str(changes.schema.table)):
            if layout.mode == "append":
                rows = changes.in_every_partition if changes.schema.key else [changes]
                modes.write(self.dialect, self.connect(), layout, chunk_of(rows))
                return
            modes.remove_all(
                self.dialect,
                self.connect(),
                layout,
                only=_parse_given(layout, changes.rows),
                committed_us=changes.committed_us,
            )

    def _check_begun(self) -> None:
        """Raises SinkUnavailable without the transaction of the slice: the sink was closed, and
        a new connection would write only what follows."""
        if self._transaction is None:
            raise SinkUnavailable("the connection was closed while a slice was applied")

    def commit(self, end: AppliedOffsets) -> None:
        self._check_begun()
        with translate_errors(self.dialect):
            self.offsets.replace(
                self.connect(),
                [(self._locked[part], self._move(part, applied)) for part, applied in end.items()],
            )
            # Last, so that the generation of a table created meanwhile is higher.
            self.offsets.delete(self.connect(), self._stale)
            if not self.dialect.has_transactional_ddl:
                self._check_unswapped()
            self._transaction.commit()
            self._transaction = None
            self._used_ms = self.context.clock.monotonic_ms()
            self._reported |= end
            self.tables.forms.end()
            self._drop_columns()

    def rollback(self) -> None:
        """Rolls back and never raises; a connection that cannot roll back is dropped."""
        self._generations.clear()
        self.tables.forget()
        self.columns.forget()
        self.dialect.forget()
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                transaction.rollback()
        except Exception:
            self.disconnect()
            return
        if self._connection is not None and self._connection.invalidated:
            self.disconnect()

    def run_outside(self, wanted: SchemaChangeFirst) -> None:
        """Runs DDL that commits by itself. An earlier attempt may have done half of it."""
        self.rollback()
        with translate_errors(self.dialect, table=wanted.table):
            if wanted.begin is not None:
                wanted.begin()
                self.connect().connection.commit()
            for statement in wanted.statements:
                run(self.connect(), statement)
            self.connect().connection.commit()

    def shaping(self, schema: TableSchema, topics: Collection[str] = ()) -> SchemaAlteration:
        """`topics` are the topics of rows of this schema."""
        connection = self.connect()
        live = self.tables.live(schema.table)
        generation = self.next_generation(connection, live)
        if self.shadow is not None:
            generation = self.shadow.generation
        return self.tables.plan_layout(
            connection,
            schema,
            next_generation=generation,
            may_drop=self._is_fed_by_one(live),
            may_rekey=self.shadow is None
            and are_later_generations(topics, former=self.fed_by(live)),
            stored_ids=lambda generation: self.columns.read(connection, live, generation),
            is_unfilled=lambda generation: self._is_unfilled(live, generation),
        )

    def _is_unfilled(self, live: TableId, generation: int) -> bool:
        """Returns whether an earlier attempt made the table, and never applied a slice to it."""
        connection = self.connect()
        if self.shadow is not None or self.dialect.has_transactional_ddl:
            return False
        if self.offsets.is_there(connection):
            rows = self.offsets.read_all(connection)
            if any(row.target == live and row.generation >= generation for row in rows):
                return False
        return is_empty(self.dialect, connection, live)

    def next_generation(self, connection: "sa.Connection", live: TableId) -> int:
        """Returns a generation that no stored offset names yet."""
        if not self.offsets.is_there(connection):
            return 1
        rows = self.offsets.read_all(connection)
        return max((row.generation for row in rows if row.target == live), default=0) + 1

    def fed_by(self, live: TableId) -> set[str]:
        """Returns the topics of a table's rows."""
        connection = self.connect()
        if not self.offsets.is_there(connection):
            return set()
        rows = self.offsets.read_all(connection)
        return {row.partition.topic for row in rows if row.target == live}

    def connect(self) -> "sa.Connection":
        if self._connection is None:
            with translate_errors(self.dialect):
                self._connection = connect_to(self.engine, self.dialect)
            self._driver = self._connection.connection.driver_connection
        return self._connection

    def leave_idle_connection(self) -> None:
        """Called outside of a transaction, before the server ends the session."""
        idle_ms = self.context.clock.monotonic_ms() - self._used_ms
        if 0 < self.dialect.idle_ms_max < idle_ms:
            self.disconnect()

    def leave_limited_connection(self) -> None:
        """Called outside of a transaction, before one that may pause between its statements."""
        if self.dialect.idle_ms_max:
            self.disconnect()

    def interrupt(self) -> None:
        """Ends the statement that runs, from another thread: it may wait for a lock for ever."""
        if (driver := self._driver) is not None:
            self.dialect.interrupt(driver, self.engine)

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._driver = self._transaction = None
        self.dialect.forget()
        if connection is not None:
            connection.invalidate()
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._driver = None
            self._connection.close()
            self._connection = None
        self.engine.dispose()

    def _drop_columns(self) -> None:
        """Drops columns for which DDL would have ended the transaction.

        The rows are already written. A column that cannot be dropped, for example because of a
        view, stays until another slice.
        """
        statements = [each for drops in self._drops.values() for each in drops]
        for statement in statements:
            try:
                run(self.connect(), statement)
                self.connect().connection.commit()
            except Exception as error:
                if not is_of_driver(error) or meaning(self.dialect, error)[0] is DriverProblem.AWAY:
                    raise
                self.connect().connection.rollback()
                logger.warning(
                    "a column stays in the target: %s (%s)",
                    statement,
                    meaning(self.dialect, error)[1],
                )
        if statements:
            self.tables.forget()

    def _lock(self, connection: "sa.Connection", start: AppliedOffsets) -> None:
        rows = self.offsets.read(connection, {part.topic for part in start}, for_update=True)
        counting, stale = self._counting(connection, rows)
        check_offsets(counting, start)
        gone = [part for part in start if part in self._reported and part not in counting]
        if gone:
            raise SinkUnavailable(
                "the table of this topic's rows is gone; it will be filled again",
                topic=gone[0].topic,
            )
        self._stale = stale
        if self.shadow is not None:  # they belong to the generation that begins now
            self.offsets.delete(connection, stale)
        fresh = {part: self._fresh(part, applied) for part, applied in start.items()}
        new = [row for part, row in fresh.items() if part not in counting]
        try:
            self.offsets.insert(connection, new)
        except Exception as error:
            if is_of_driver(error) and meaning(self.dialect, error)[0] is DriverProblem.TAKEN:
                raise Fenced("another process fills the target") from None
            raise
        self._locked = fresh | {part: counting[part] for part in start if part in counting}

    def _counting(
        self, connection: "sa.Connection", rows: Sequence[OffsetRow]
    ) -> tuple[dict[TopicPartition, OffsetRow], list[OffsetRow]]:
        """Returns the offset rows that count, one per partition, and those whose table is gone."""
        counting: dict[TopicPartition, OffsetRow] = {}
        stale: list[OffsetRow] = []
        for row in rows:
            if self.shadow is not None:
                current = self._generation(connection, row.target or self.shadow.table, row)
                is_ours = row.generation == self.shadow.generation
                if is_ours and current == self.shadow.generation:
                    counting[row.partition] = row
                elif is_ours:
                    stale.append(row)
                continue
            if row.target is None and row.generation == 0:
                counting.setdefault(row.partition, row)
                continue
            current = self._generation(connection, row.target, row)
            if row.generation == current:
                counting[row.partition] = row
            elif current is None or row.generation < current:
                stale.append(row)
        return counting, stale

    def _generation(
        self, connection: "sa.Connection", live: TableId | None, row: OffsetRow
    ) -> int | None:
        """Returns the table's present generation; read again if a stored one is newer."""
        if live is None:
            return None
        generation = self._generations.get(live)
        if live not in self._generations or generation is None or row.generation != generation:
            target_name = live if self.shadow is None else self.tables.beside(live, SHADOW)
            found = self.dialect.find(connection, target_name)
            mark = None if found is None else found.mark
            is_unmarked = found is not None and not self.dialect.keeps_marks
            generation = mark.generation if mark is not None else 1 if is_unmarked else None
            if generation != self._generations.get(live, generation):
                self.tables.forget()  # another table has this name now, with another layout
            self._generations[live] = generation
        return generation

    def _check_unswapped(self) -> None:
        """Raises if a copy took the table's place before the first row was written.

        That can happen after the offsets were locked: the slice's rows are then in the copy,
        perhaps with later ones. After the first row no process can rename the table, so its mark
        stays valid.
        """
        if not self.dialect.keeps_marks:
            return
        for live, generation in set(self._fed.values()):
            target_name = live if self.shadow is None else self.tables.beside(live, SHADOW)
            found = self.dialect.find(self.connect(), target_name)
            if found is None or found.mark is None or found.mark.generation != generation:
                raise SinkUnavailable(
                    "a copy has replaced the table; the sink continues at the copy's offsets",
                    table=str(live),
                )

    def _fresh(self, partition: TopicPartition, applied: AppliedOffset) -> OffsetRow:
        if self.shadow is None:
            return OffsetRow(partition, 0, applied, None)
        return OffsetRow(partition, self.shadow.generation, applied, self.shadow.table)

    def _move(self, partition: TopicPartition, applied: AppliedOffset) -> OffsetRow:
        locked = self._locked[partition]
        target, generation = self._fed.get(partition.topic, (locked.target, locked.generation))
        return OffsetRow(partition, generation, applied, target)

    def _is_fed_by_one(self, live: TableId) -> bool:
        """Returns whether at most one partition feeds the table: then schemas come in order, and
        removed columns stay removed."""
        connection = self.connect()
        if not self.offsets.is_there(connection):
            return True
        rows = [row for row in self.offsets.read_all(connection) if row.target == live]
        return len({row.partition for row in rows}) <= 1

    def _layout(self, schema: TableSchema, topics: Sequence[str]) -> SqlTableLayout:
        """Returns the layout for `schema`, after the table was altered for it."""
        layout = self.tables.find_layout(schema)
        if layout is None:
            self.tables.forms.meet(schema)
            with translate_errors(self.dialect, table=str(schema.table)):
                layout = self._layout_of(schema, topics)
            self.tables.remember(schema, layout)
        live = self.tables.live(schema.table)
        self._generations[live] = layout.generation
        self._fed |= dict.fromkeys(topics, (live, layout.generation))
        return layout

    def _layout_of(self, schema: TableSchema, topics: Collection[str]) -> SqlTableLayout:
        if schema.id and not self.columns.is_there(self.connect()):
            creation = self.columns.creation(self.connect())
            raise SchemaChangeFirst([creation], table=str(schema.table))
        shaping = self.shaping(schema, topics)
        if not self.dialect.has_transactional_ddl:
            if shaping.stages:
                moves = shaping.moves[0] if shaping.moves else {}
                self.tables.forms.break_off(schema, moves)
                raise SchemaChangeFirst(
                    list(shaping.stages[0]),
                    table=str(schema.table),
                    begin=partial(self._begin, schema, shaping),
                )
            # A column that returns in a later schema of the slice is not dropped.
            self._drops[shaping.layout.table] = shaping.drops
            self._learn(schema, shaping)
            return shaping.layout
        try:
            for statement in [*shaping.statements, *shaping.drops]:
                run(self.connect(), statement)
        except Exception as error:
            if not shaping.is_of_key or not is_of_driver(error):
                raise
            problem, why = meaning(self.dialect, error)
            if problem not in (DriverProblem.VALUE, DriverProblem.TAKEN):
                raise
            raise cannot_rekey(schema.table, why=why) from None
        if shaping.statements or shaping.drops:
            self.dialect.forget()
        if shaping.is_of_key:
            return self._layout_of(schema, topics)
        self._learn(schema, shaping)
        return shaping.layout

    def _begin(self, schema: TableSchema, shaping: SchemaAlteration) -> None:
        """Stores which renames begin. The columns that the attempt before has learnt were rolled
        back."""
        if shaping.begin is not None:
            live, generation = self.tables.live(schema.table), shaping.layout.generation
            stored = self.columns.read(self.connect(), live, generation)
            self._store_ids(schema, shaping.layout, shaping.begin(stored))

    def _store_ids(self, schema: TableSchema, layout: SqlTableLayout, ids: ColumnIds) -> None:
        live = self.tables.live(schema.table)
        if ids != self.columns.read(self.connect(), live, layout.generation):
            self.columns.write(self.connect(), live, layout.generation, ids)

    def _learn(self, schema: TableSchema, shaping: SchemaAlteration) -> None:
        """Fills new columns of existing rows, and stores the columns' ids."""
        connection, layout = self.connect(), shaping.layout
        for name, column in shaping.fills.items():
            table, quoted = qualify(self.dialect, layout.table), self.dialect.quote(name)
            run(connection, f"UPDATE {table} SET {quoted} = NULL WHERE {quoted} IS NOT NULL")
            if column.missing is None:
                continue
            rows = pa.RecordBatch.from_arrays(
                [pa.array([missing_value(column)], column.type)], names=[name]
            )
            self.dialect.update(connection, layout.table, rows, RowCondition((), unset=name))
            if layout.mode == "append":  # a deleted row has only its key
                operation = self.dialect.quote(OP)
                run(connection, f"UPDATE {table} SET {quoted} = NULL WHERE {operation} = 'd'")
        self._store_ids(schema, layout, shaping.column_ids)

    def _attempt(
        self, layout: SqlTableLayout, chunk: BufferedChanges, *, keep: bool = True
    ) -> RefusedRow | None:
        """Writes the changes, or rolls back and returns the reason."""
        connection = self.connect()
        with translate_errors(self.dialect, table=str(chunk.schema.table)):
            nested = connection.begin_nested()
            try:
                modes.write(self.dialect, connection, layout, chunk)
            except Exception as error:
                if not is_of_driver(error):
                    raise
                refused = refused_by(self.dialect, error, columns=layout.names)
                if refused.problem not in (DriverProblem.VALUE, DriverProblem.TAKEN):
                    raise
                nested.rollback()
                self.dialect.forget()
                return refused
            if keep:
                nested.commit()
            else:
                nested.rollback()
                self.dialect.forget()
            return None

    def _blame(self, layout: SqlTableLayout, chunk: BufferedChanges, refused: RefusedRow) -> None:
        """Finds single changes that cannot be written, by halving."""
        reasons: dict[int, str] = {}
        waiting = [(0, len(chunk), refused)]
        while waiting and len(reasons) < REJECTS_MAX:
            start, stop, why = waiting.pop()
            if stop - start == 1:
                reasons[start] = describe(chunk, start, why)
                continue
            middle = (start + stop) // 2
            for half in ((middle, stop), (start, middle)):
                found = self._attempt(layout, chunk.slice(half[0], half[1] - half[0]), keep=False)
                if found is not None:
                    waiting.append((*half, found))
        if not reasons:
            raise SinkRejected(
                "the rows can be written one by one, but not together",
                table=str(chunk.schema.table),
                why=refused.why,
            )
        raise rejected_error(chunk, reasons)


def _parse_given(layout: SqlTableLayout, rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """Returns the columns that a route has filled in a truncate's row of nulls: only rows with
    these values are removed."""
    names = [
        name
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if column.null_count == 0 and name in layout.names
    ]
    if not names:
        return None
    return rows.select(names).rename_columns([layout.names[name] for name in names])
