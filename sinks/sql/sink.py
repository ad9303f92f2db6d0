"""The `sql` sink: each slice of the log into tables of a database, in one transaction."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.errors import Diagnostic, Fenced, SinkRejected, SinkUnavailable
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.sink import (
    AppliedOffsets,
    CarryOver,
    RebuildRecipe,
    SinkContext,
    Slice,
    TableContents,
)
from headwater.sinks.sql.change_buffer import BufferedChanges, ChangeBuffer
from headwater.sinks.sql.failures import RetryTransaction, SchemaChangeFirst
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.table_layout import SqlShadow

if TYPE_CHECKING:
    from headwater.sinks.sql.target import SqlTarget

Result = TypeVar("Result")

ATTEMPTS_MAX = 5
"""Attempts of a transaction that the database aborted in favour of another one."""


class SqlSink:
    """Keeps tables of a database equal to the source's, exactly once.

    Rows and their offsets commit together. All of the driver's work is done in one thread.
    """

    Settings = SqlSettings

    def __init__(
        self, settings: SqlSettings, context: SinkContext, *, shadow: SqlShadow | None = None
    ) -> None:
        self._settings, self._context, self._shadow = settings, context, shadow
        self._thread: ThreadPoolExecutor | None = None
        self._target: SqlTarget | None = None
        self._writing: asyncio.Future[None] | None = None

    def prepare(self) -> None:
        """Loads SQLAlchemy early: that takes as long as the first requests to the log."""
        self._start(lambda _: None).add_done_callback(asyncio.Future.exception)

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        return await self._ask(lambda target: target.committed_offsets(topics))

    async def apply(self, part: Slice) -> None:
        refusals, refused = 0, list[str]()
        while True:
            try:
                await self._apply_once(part)
            except SchemaChangeFirst as wanted:
                try:
                    await self._run_outside(wanted)
                except SinkRejected:  # the same statement of a killed run may have ended only now
                    if wanted.statements == refused:
                        raise
                    refused = wanted.statements
            except RetryTransaction as refusal:
                refusals += 1
                if refusals == ATTEMPTS_MAX:
                    raise SinkUnavailable(
                        "the database keeps aborting the transaction in favour of others",
                        why=str(refusal),
                    ) from None
            else:
                return

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        from headwater.sinks.sql.preflight import plan

        return await self._ask(lambda target: plan(target, schemas))

    async def examine(self) -> Sequence[Diagnostic]:
        from headwater.sinks.sql.preflight import examine

        return await self._ask(examine)

    async def drop(self) -> Sequence[str]:
        from headwater.sinks.sql.rebuild import drop

        return await self._ask(drop)

    async def drop_table(self, table: TableId, topics: Collection[str]) -> Sequence[str]:
        from headwater.sinks.sql.rebuild import drop_table

        return await self._ask(lambda target: drop_table(target, table, topics))

    async def shadow(self, recipe: RebuildRecipe) -> "SqlSink":
        from headwater.sinks.sql.rebuild import shadow_of

        shadow = await self._ask(lambda target: shadow_of(target, recipe))
        return SqlSink(self._settings, self._context, shadow=shadow)

    async def swap(self, table: TableId, carry_over: CarryOver | None = None) -> str:
        from headwater.sinks.sql.rebuild import swap

        return await self._ask(lambda target: swap(target, table, carry_over))

    @asynccontextmanager
    async def contents(
        self, schema: TableSchema, topics: Collection[str]
    ) -> AsyncIterator[TableContents]:
        """Runs in a transaction of this sink's only connection, so it applies nothing meanwhile."""
        from headwater.sinks.sql.contents import close_contents, open_contents

        opened = await self._ask(lambda target: open_contents(target, schema, topics))

        async def batches() -> AsyncGenerator[pa.RecordBatch, None]:
            while (batch := await self._read(lambda _: next(opened.pages, None))) is not None:
                yield batch

        try:
            async with aclosing(batches()) as found:
                yield TableContents(opened.offsets, opened.columns, found, opened.deleted)
        finally:
            await self._run(lambda target: close_contents(target, opened))

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        target, self._target = self._target, None
        if target is not None:
            await asyncio.get_running_loop().run_in_executor(thread, target.close)
        thread.shutdown()

    async def _apply_once(self, part: Slice) -> None:
        gathering = ChangeBuffer(
            rows_max=self._settings.chunk_rows, bytes_max=self._settings.chunk_bytes
        )
        try:
            self._writing = self._start(lambda target: target.begin(part.start))
            async for changes in part.changes():
                if changes.is_truncate:
                    await self._write(gathering.release(str(changes.schema.table)))
                    await self._settle()
                    await self._truncate(changes)
                elif len(changes):
                    await self._write(gathering.add(changes))
            await self._write(gathering.release_all())
            await self._settle()
            await self._run(lambda target: target.commit(part.end))
        except BaseException as error:
            rolled_back = asyncio.ensure_future(self._roll_back(error))
            await wait_for_end(rolled_back)
            earlier = rolled_back.result()
            if isinstance(earlier, Fenced) and isinstance(error, Exception):
                raise earlier from None  # results that were read are needed no more
            raise

    async def _roll_back(self, error: BaseException) -> BaseException | None:
        """Returns the error of the last write."""
        writing, self._writing = self._writing, None
        if writing is not None:
            if isinstance(error, asyncio.CancelledError):
                await self._interrupt()
            await asyncio.wait([writing])
        await self._run(lambda target: target.rollback())
        return None if writing is None else writing.exception()

    async def _write(self, chunks: Sequence[BufferedChanges]) -> None:
        """Writes while the next changes are read. The beginning also runs during the first read."""
        for chunk in chunks:
            await self._settle()
            self._writing = self._start(partial(_write_chunk, chunk))

    async def _settle(self) -> None:
        """Raises the error of the last write."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await self._finish(writing)

    async def _truncate(self, changes: TableChanges) -> None:
        await self._run(lambda target: target.truncate(changes))

    async def _run_outside(self, wanted: SchemaChangeFirst) -> None:
        await self._run(lambda target: target.run_outside(wanted))

    async def _ask(self, work: "Callable[[SqlTarget], Result]") -> Result:
        """Returns what the work finds, which begins outside of a transaction."""

        def begin(target: "SqlTarget") -> Result:
            target.leave_idle_connection()
            return work(target)

        return await self._read(begin)

    async def _read(self, work: "Callable[[SqlTarget], Result]") -> Result:
        try:
            return await self._run(work)
        except RetryTransaction as refusal:
            raise SinkUnavailable("the database is busy", why=str(refusal)) from None

    async def _run(self, work: "Callable[[SqlTarget], Result]") -> Result:
        return await self._finish(self._start(work))

    async def _finish(self, working: "asyncio.Future[Result]") -> Result:
        try:
            return await working
        except asyncio.CancelledError:
            await self._interrupt()
            raise

    async def _interrupt(self) -> None:
        """Frees the thread from the statement that it waits for: all else would wait behind it."""
        if self._target is not None:
            with suppress(Exception):  # then the statement ends by itself, or the process is killed
                await asyncio.to_thread(self._target.interrupt)

    def _start(self, work: "Callable[[SqlTarget], Result]") -> "asyncio.Future[Result]":
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql-sink")
        return asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: "Callable[[SqlTarget], Result]") -> Result:
        if self._target is None:
            from headwater.sinks.sql.target import SqlTarget

            self._target = SqlTarget(self._settings, self._context, shadow=self._shadow)
        return work(self._target)


def _write_chunk(chunk: BufferedChanges, target: "SqlTarget") -> None:
    target.write(chunk)
