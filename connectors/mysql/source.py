"""The `mysql` and `mariadb` sources: an initial snapshot, then every committed change."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.source import Control, DdlOutcome, SourceContext, SourceSnapshot
from headwater.core_log.foundation.errors import Diagnostic, PositionLost, SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from headwater.connectors.mysql.session import MysqlSession


class MysqlSource:
    """Exactly once: the server sends everything after a position again, in whole groups."""

    Settings = MysqlSettings

    def __init__(self, settings: MysqlSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context
        self._session: MysqlSession | None = None

    def replaces_tables(self) -> bool:
        return self._settings.snapshot.mode != "never"

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        from headwater.connectors.mysql.session import MysqlSession

        lost, is_over = "", False
        while not is_over:
            self._session = MysqlSession(self._settings, self._context, resume_from, lost)
            try:
                async with aclosing(self._session.batches()) as batches:
                    async for batch in batches:
                        yield batch
                is_over = True
            except PositionLost as error:  # the stream itself has said so
                if self._settings.position_mismatch == "stop" or lost:
                    raise
                lost = error.problem

    async def acknowledge(self, positions: Positions) -> None:
        """The server keeps its log by its own clock."""

    async def control(self, control: Control) -> None:
        if self._session is None:
            raise SourceRejected("the source is not running", kind=control.kind)
        await self._session.control(control)

    async def discover(self) -> Sequence[TableSchema]:
        from headwater.connectors.mysql.doctor import find_tables

        tables = await asyncio.to_thread(find_tables, self._settings)
        return [each.schema for each in tables if not each.problem]

    async def row_estimates(self) -> Mapping[TableId, int]:
        from headwater.connectors.mysql.doctor import find_tables

        tables = await asyncio.to_thread(find_tables, self._settings)
        return {each.table: each.rows_estimate for each in tables if not each.problem}

    def parts_of(self, table: TableId) -> Sequence[str]:
        from headwater.connectors.mysql.snapshot.table_jobs import form_part, progress_part

        return progress_part(table), form_part(table)

    async def rehearse(self, statements: Sequence[str]) -> Sequence[DdlOutcome]:
        from headwater.connectors.mysql.ddl_rehearsal import rehearse

        return await asyncio.to_thread(rehearse, self._settings, self._context, statements)

    async def examine(self) -> Sequence[Diagnostic]:
        from headwater.connectors.mysql.doctor import examine

        return await asyncio.to_thread(examine, self._settings)

    async def examine_position(
        self, stored: Callable[[], Awaitable[Positions]]
    ) -> Sequence[Diagnostic]:
        from headwater.connectors.mysql.doctor import examine_position

        return await asyncio.to_thread(examine_position, self._settings, await stored())

    async def drop(self) -> Sequence[str]:
        """The source leaves nothing at the server."""
        return []

    @asynccontextmanager
    async def snapshot(self, reached: Positions) -> AsyncIterator[SourceSnapshot]:
        """Returns a snapshot, whose position is exact."""
        from headwater.connectors.mysql.snapshot.consistent_snapshot import consistent_snapshot

        async with consistent_snapshot(self._settings, self._context, reached) as snapshot:
            yield snapshot
