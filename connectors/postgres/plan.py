"""The publication and the slot that a run would create at the server, as SQL."""

from collections.abc import Sequence

from psycopg import sql

from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.publication import manage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.publication.uncapturable_tables import findings_of
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.core_log.model.table_schema import TableId


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
