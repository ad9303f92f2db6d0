"""What a run would make at the server, as SQL: the publication and the slot."""

from collections.abc import Sequence

from psycopg import sql

from connectors.postgres import publications, publishing, slots
from connectors.postgres.connecting import Connection
from connectors.postgres.looking import connected, look
from connectors.postgres.publications import Publication
from connectors.postgres.refused import findings_of
from connectors.postgres.settings import PostgresSettings
from core_log.table_schema import TableId


async def plan(settings: PostgresSettings, pipeline: str) -> Sequence[str]:
    name = publications.publication_name(settings, pipeline)
    async with connected(settings) as connection:
        found = await publications.look(connection, name)
        looked = await look(connection, settings, pipeline)
        tables = [each.table for each in looked.tables]
        told = [f"-- {each.problem}: {each.cure}" for each in findings_of(looked.refused)]
        told += await _of_publication(connection, settings, found, name, tables)
        slot = slots.slot_name(settings, pipeline)
        if await slots.look(connection, slot) is None:
            told.append(_slot_statement(connection, settings, slot))
    return told


async def _of_publication(
    connection: Connection,
    settings: PostgresSettings,
    found: Publication | None,
    name: str,
    tables: Sequence[TableId],
) -> list[str]:
    created = publishing.creation(name, tables, version=connection.info.server_version)
    if found is None:
        wanted = [created] if tables else []
    elif settings.publication.create == "never":
        wanted = [] if publications.covers(found, tables) else publishing.changes(found, tables)
    else:
        with_generated = await publishing.lacks_generated(connection, found, tables)
        wanted = publishing.changes(found, tables, with_generated=with_generated)
    if settings.publication.create == "never":
        return [f"-- for the owner of the tables: {each};" for each in wanted]
    return [f"{each};" for each in wanted]


def _slot_statement(connection: Connection, settings: PostgresSettings, slot: str) -> str:
    """A run makes it by the same command of the replication protocol."""
    version = connection.info.server_version
    failover = ", failover => true" if slots.wants_failover(settings, version) else ""
    command = sql.SQL("SELECT pg_create_logical_replication_slot({}, {}" + failover + ");")
    return command.format(sql.Literal(slot), sql.Literal(slots.PLUGIN)).as_string(connection)
