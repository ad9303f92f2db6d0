"""The `postgres` source: an initial snapshot, then every committed change, exactly once."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from psycopg import sql

from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.publication import manage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.publication.replica_identity import findings_of
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.source import Control, DdlOutcome, SourceContext, SourceSnapshot
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from headwater.connectors.postgres.catalog import CapturedTable
    from headwater.connectors.postgres.session import ReplicationSession

ROW_BYTES = 100
"""Approximate size of a row, for a table without statistics."""


class PostgresSource:
    """Exactly once: the server sends everything after a position again, in whole transactions."""

    Settings = PostgresSettings

    def __init__(self, settings: PostgresSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context
        self._reading: ReplicationSession | None = None

    def replaces_tables(self) -> bool:
        return self._settings.snapshot.mode != "never"

    def prepare(self) -> None:
        Thread(target=_load, name="load", daemon=True).start()

    def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        from headwater.connectors.postgres.session import ReplicationSession

        self._reading = ReplicationSession(self._settings, self._context, resume_from)
        return self._reading.batches()

    async def acknowledge(self, positions: Positions) -> None:
        if self._reading is not None:
            await self._reading.acknowledge(positions)

    async def control(self, control: Control) -> None:
        if self._reading is None:
            raise SourceRejected("the source is not running", kind=control.kind)
        await self._reading.control(control)

    async def discover(self) -> Sequence[TableSchema]:
        from headwater.connectors.postgres.discovery import captured_tables

        return [
            table.schema for table in await captured_tables(self._settings, self._context.pipeline)
        ]

    async def row_estimates(self) -> Mapping[TableId, int]:
        from headwater.connectors.postgres.discovery import captured_tables

        known = () if self._reading is None else self._reading.tables
        tables = known or await captured_tables(self._settings, self._context.pipeline)
        return {each.table: rows_of(each) for each in tables}

    def parts_of(self, table: TableId) -> Sequence[str]:
        from headwater.connectors.postgres.schema_history.table_definition import (
            part_of as form_part_of,
        )
        from headwater.connectors.postgres.snapshot.progress import part_of

        return part_of(table), form_part_of(table)

    async def plan(self) -> Sequence[str]:
        from headwater.connectors.postgres.source import plan

        return await plan(self._settings, self._context.pipeline)

    async def rehearse(self, statements: Sequence[str]) -> Sequence[DdlOutcome]:
        from headwater.connectors.postgres.ddl_rehearsal import rehearse

        return await rehearse(self._settings, self._context, statements)

    async def examine(self) -> Sequence[Diagnostic]:
        from headwater.connectors.postgres.doctor.doctor import examine

        return await examine(self._settings, self._context.pipeline)

    async def examine_position(
        self, stored: Callable[[], Awaitable[Positions]]
    ) -> Sequence[Diagnostic]:
        from headwater.connectors.postgres.doctor.slots import examine_position

        return await examine_position(self._settings, self._context.pipeline, stored)

    async def watch_retained(self) -> None:
        from headwater.connectors.postgres.slot import heartbeat, replication_slot

        slot = replication_slot.slot_name(self._settings, self._context.pipeline)
        await heartbeat.Heartbeat(self._settings, self._context, slot=slot).run_paused()

    async def drop(self) -> Sequence[str]:
        from headwater.connectors.postgres.discovery import drop

        return await drop(self._settings, self._context.pipeline)

    @asynccontextmanager
    async def snapshot(self, reached: Positions) -> AsyncIterator[SourceSnapshot]:
        """Returns a snapshot at an LSN that nothing has reached yet."""
        from headwater.connectors.postgres.snapshot.consistent_snapshot import consistent_snapshot

        async with consistent_snapshot(self._settings, self._context) as snapshot:
            yield snapshot


def _load() -> None:
    with suppress(ImportError):  # `changes` will raise it
        import_module("headwater.connectors.postgres.session")


def rows_of(table: "CapturedTable") -> int:
    """Returns the approximate number of rows, as of the last ANALYZE."""
    return table.bytes // ROW_BYTES if table.rows_estimate is None else table.rows_estimate


async def plan(settings: PostgresSettings, pipeline: str) -> Sequence[str]:
    name = published_tables.publication_name(settings, pipeline)
    async with open_connection(settings) as connection:
        found = await published_tables.look(connection, name)
        looked = await look(connection, settings, pipeline)
        tables = [each.table for each in looked.tables]
        told = [f"-- {each.problem}: {each.hint}" for each in findings_of(looked.refused)]
        told += await _of_publication(connection, settings, found, name, tables)
        slot = replication_slot.slot_name(settings, pipeline)
        if await replication_slot.look(connection, slot) is None:
            told.append(_slot_statement(connection, settings, slot))
    return told


async def _of_publication(
    connection: PgConnection,
    settings: PostgresSettings,
    found: Publication | None,
    name: str,
    tables: Sequence[TableId],
) -> list[str]:
    created = manage.creation(name, tables, version=connection.info.server_version)
    if found is None:
        wanted = [created] if tables else []
    elif settings.publication.create == "never":
        wanted = [] if published_tables.covers(found, tables) else manage.changes(found, tables)
    else:
        with_generated = await manage.lacks_generated(connection, found, tables)
        wanted = manage.changes(found, tables, with_generated=with_generated)
    if settings.publication.create == "never":
        return [f"-- for the owner of the tables: {each};" for each in wanted]
    return [f"{each};" for each in wanted]


def _slot_statement(connection: PgConnection, settings: PostgresSettings, slot: str) -> str:
    """Returns the statement; a run uses the same command of the replication protocol."""
    version = connection.info.server_version
    failover = ", failover => true" if replication_slot.wants_failover(settings, version) else ""
    command = sql.SQL("SELECT pg_create_logical_replication_slot({}, {}" + failover + ");")
    return command.format(sql.Literal(slot), sql.Literal(replication_slot.PLUGIN)).as_string(
        connection
    )
