"""The `sql` source: polls the tables of a database on a schedule."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from headwater.connectors.left_out_tables import REFUSED, left_out_diagnostic
from headwater.connectors.source import CONTROL, Control, Remark, SourceContext, SourceSnapshot
from headwater.connectors.sql.settings import SqlSourceSettings
from headwater.core_log.foundation.errors import (
    ConfigError,
    Diagnostic,
    HeadwaterError,
    SourceRejected,
)
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.changes import (
    ChangeBatch,
    Operation,
    Positions,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from headwater.connectors.sql.database import Database, SqlTable
    from headwater.connectors.sql.table_poll import PollingRounds

Result = TypeVar("Result")

UNMATCHED = "unmatched names"


class SqlSource:
    """At least once: a repeated query may return a row again. All calls of the driver run on one
    thread, and only read."""

    Settings = SqlSourceSettings

    def __init__(self, settings: SqlSourceSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context
        self._signals: list[Control] = []
        self._failed: dict[TableId, HeadwaterError] = {}
        """Tables that the last poll could not read completely."""
        self._known: set[TableId] = set()
        """Tables that are not to be taken for others under new names."""

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        from headwater.connectors.sql.table_poll import PollingRounds

        with ThreadPoolExecutor(1, thread_name_prefix="sql-source") as thread:
            database = await _on(thread, self._database)
            rounds = PollingRounds(database, self._settings, self._context, version("headwater"))
            try:
                read = set[TableId]()
                while True:
                    round_ = self._round(thread, database, rounds, resume_from, read)
                    known = len(read)
                    async with aclosing(round_) as batches:
                        async for batch in batches:
                            yield batch
                    if self._context.until_end:
                        if len(read) > known:
                            continue  # created while others were read
                        return
                    read.clear()
                    await asyncio.sleep(self._pause_s())
            finally:
                await _on(thread, database.close)

    async def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the source keeps no state."""

    async def control(self, control: Control) -> None:
        if control.kind != "snapshot":
            raise SourceRejected("the source does not support this signal", kind=control.kind)
        self._signals.append(control)

    def parts_of(self, table: TableId) -> Sequence[str]:
        from headwater.connectors.sql.table_poll import part_named

        return (part_named(table),)

    async def discover(self) -> Sequence[TableSchema]:
        with ThreadPoolExecutor(1) as thread:
            return await _on(
                thread, lambda: [table.schema for table in self._inspect_database()[0]]
            )

    async def row_estimates(self) -> Mapping[TableId, int]:
        with ThreadPoolExecutor(1) as thread:
            return await _on(thread, self._row_estimates)

    async def examine(self) -> Sequence[Diagnostic]:
        with ThreadPoolExecutor(1) as thread:
            try:
                tables, refused = await _on(thread, self._inspect_database)
            except HeadwaterError as error:
                return [Diagnostic(error.statement, error.hint or "correct the source's keys")]
        about = [Diagnostic(each.statement, each.hint) for each in refused.values()]
        if not tables and refused:
            return about
        if not tables:
            return [Diagnostic("no table matches `tables`", "correct `tables` of the source")]
        unmatched = self._find_unmatched([*(table.id for table in tables), *refused])
        about += [finding for table in tables for finding in self._findings(table)]
        return about if unmatched is None else [unmatched, *about]

    async def drop(self) -> Sequence[str]:
        return ()

    @asynccontextmanager
    async def snapshot(self, reached: Positions) -> AsyncIterator[SourceSnapshot]:
        """Returns a snapshot of about the present, page by page: a polled database has no
        position."""
        with ThreadPoolExecutor(1, thread_name_prefix="sql-source") as thread:
            database = await _on(thread, self._database)
            tables: dict[TableId, SqlTable] = {}

            async def rows(table: TableId) -> AsyncGenerator[TableChanges, None]:
                if table not in tables:
                    return
                pages = self._pages(database, tables[table])
                while (page := await _on(thread, lambda: next(pages, None))) is not None:
                    yield page

            try:
                tables |= {table.id: table for table in await _on(thread, database.tables)}
                refused = {table: str(error) for table, error in database.refused.items()}
                yield SourceSnapshot(
                    {},
                    rows,
                    sees_deletes=self._settings.deletes == "compare",
                    tables=dict.fromkeys(tables, "") | refused,
                    columns=lambda table: tables[table].schema.names if table in tables else None,
                )
            finally:
                await _on(thread, database.close)

    def _pages(self, database: "Database", table: "SqlTable") -> Iterator[TableChanges]:
        after: Sequence[str] | None = None
        times = source_times(self._context.clock.now_ms() * 1_000)
        while True:
            rows, after = database.page(table, after=after)
            if rows.num_rows:
                kinds = pa.repeat(pa.scalar(int(Operation.READ), pa.uint8()), rows.num_rows)
                yield TableChanges(table.schema, rows, kinds, times)
            if after is None or not table.order or rows.num_rows < self._settings.batch_rows:
                return

    async def _round(
        self,
        thread: ThreadPoolExecutor,
        database: "Database",
        rounds: "PollingRounds",
        resume_from: Positions,
        read: set[TableId],
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Polls each table once. Tables in `read` are done; the others are added to it."""
        from headwater.connectors.sql.table_poll import part_of

        signals, self._signals = self._signals, []
        tables = await _on(thread, database.tables)
        there = {table.id for table in tables} | database.refused.keys()
        self._failed = {table: each for table, each in self._failed.items() if table in there}
        self._say_left_out(tables, database.refused)
        for table in tables:
            if not rounds.is_known(table):
                rounds.resume(table, resume_from.get(part_of(table)))
                if part_of(table) in resume_from:
                    self._known.add(table.id)
            if any(signal.table in (None, table.id) for signal in signals):
                rounds.again(table)
            elif table.id in read:
                continue
            read.add(table.id)
            failed = self._failed.pop(table.id, None)
            async with aclosing(self._of_table(thread, rounds, table, there)) as batches:
                async for batch in batches:
                    yield batch
            if self._failed.get(table.id) is not failed:
                self._say_refused(database.refused)
        if tables and {table.id for table in tables} == self._failed.keys():
            raise next(iter(self._failed.values()))
        if signals:
            yield ChangeBatch((), {f"{CONTROL}{signal.id}": signal.kind for signal in signals})

    async def _of_table(
        self,
        thread: ThreadPoolExecutor,
        rounds: "PollingRounds",
        table: "SqlTable",
        there: Set[TableId],
    ) -> AsyncGenerator[ChangeBatch, None]:
        is_open = False
        try:
            refusal = await self._refusal(table.schema, there)
            if refusal is not None:
                raise refusal
            async with aclosing(_each(thread, rounds.of(table))) as batches:
                async for batch in batches:
                    yield batch
                    is_open = not batch.positions
        except (SourceRejected, ConfigError) as error:
            self._failed[table.id] = error
        if is_open:
            yield rounds.broken_off(table)

    async def _refusal(self, schema: TableSchema, there: Set[TableId]) -> HeadwaterError | None:
        """Returns why no row of the table may enter the log; a new one may be one that is gone."""

        def is_gone(other: TableId) -> bool:
            return other not in there

        if schema.table not in self._known:
            refusal = await self._context.refusal_of_new(schema, may_be=is_gone, is_gone=is_gone)
            if refusal is not None:
                return refusal
            self._known.add(schema.table)
        return await self._context.refusal(schema, is_next=True)

    def _say_left_out(
        self, tables: "Sequence[SqlTable]", refused: Mapping[TableId, SourceRejected]
    ) -> None:
        """Reports missing tables as warnings; they may exist at the next poll."""
        if not tables and refused:
            raise next(iter(refused.values()))
        found = self._find_unmatched([*(table.id for table in tables), *refused])
        if not tables and self._context.until_end:
            raise SourceRejected("no table matches `tables`", hint="correct `tables` of the source")
        self._context.report(Remark(UNMATCHED, found))
        self._say_refused(refused)

    def _say_refused(self, refused: Mapping[TableId, SourceRejected]) -> None:
        self._context.report(
            Remark(REFUSED, left_out_diagnostic({**refused, **self._failed}, matched_by="tables"))
        )

    def _find_unmatched(self, tables: Sequence[TableId]) -> Diagnostic | None:
        from headwater.connectors.sql.database import names_of

        wanted = Patterns(self._settings.tables)
        missing = wanted.find_unmatched(names_of(table) for table in tables)
        if not missing:
            return None
        return Diagnostic(
            f"`tables` names missing tables: there is no table {', '.join(missing)}",
            "correct `tables` of the source",
            is_fatal=False,
            left_out=tuple(missing),
        )

    def _database(self) -> "Database":
        from headwater.connectors.sql.database import Database

        return Database(self._settings, directory=self._context.directory)

    def _inspect_database(self) -> "tuple[list[SqlTable], Mapping[TableId, SourceRejected]]":
        database = self._database()
        try:
            return database.tables(), database.refused
        finally:
            database.close()

    def _row_estimates(self) -> dict[TableId, int]:
        database = self._database()
        try:
            return {table.id: database.row_estimate(table) for table in database.tables()}
        finally:
            database.close()

    def _findings(self, table: "SqlTable") -> list[Diagnostic]:
        found = []
        if not table.order:
            found.append(
                Diagnostic(
                    f"{table.id} has neither key nor cursor: it is read in one piece",
                    "name its key with `keys`",
                    is_fatal=False,
                )
            )
        if table.cursor and table.schema.column(table.cursor[0]).is_nullable:
            found.append(
                Diagnostic(
                    f"rows of {table.id} in which {table.cursor[0]} is null are never read",
                    "choose a cursor that is never null",
                    is_fatal=False,
                )
            )
        found += self._lags_without_effect(table)
        return found

    def _lags_without_effect(self, table: "SqlTable") -> Iterator[Diagnostic]:
        """Returns lag settings without effect: each is for cursors of one kind, and a source may
        have both."""
        from headwater.connectors.sql.settings import given_lags, lag_of

        given = given_lags(self._settings)
        if table.cursor and given:
            own = lag_of(table.schema.column(table.cursor[0]).type)
            if own not in given:
                yield Diagnostic(
                    f"`{given[0]}` has no effect on {table.id}, whose cursor is {table.cursor[0]}",
                    f"set `{own}` if rows may be committed late there too",
                    is_fatal=False,
                )

    def _pause_s(self) -> float:
        """Returns the time until the next poll."""
        now_ms = self._context.clock.now_ms()
        return (self._settings.due_ms(last_ms=now_ms, now_ms=now_ms) - now_ms) / 1_000


async def _on(thread: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


async def _each(
    thread: ThreadPoolExecutor, batches: Iterator[ChangeBatch]
) -> AsyncGenerator[ChangeBatch, None]:
    while (batch := await _on(thread, lambda: next(batches, None))) is not None:
        yield batch
