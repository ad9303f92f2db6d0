"""Work at a database beside reading it: finds tables, advances the slot, drops our objects."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.publication import manage, published_tables
from headwater.connectors.postgres.publication.published_tables import publication_name
from headwater.connectors.postgres.publication.uncapturable_tables import RefusedTable, refused_of
from headwater.connectors.postgres.server.connection import PgConnection, connect, in_our_words
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.table_rights import without_rights
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.connectors.source import FormCheck, anything_goes

WAL_END = """
SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
    ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""


@asynccontextmanager
async def open_connection(settings: PostgresSettings) -> AsyncIterator[PgConnection]:
    connection = await connect(settings)
    try:
        yield connection
    finally:
        await connection.close()


async def captured_tables(settings: PostgresSettings, pipeline: str) -> Sequence[CapturedTable]:
    async with open_connection(settings) as connection:
        return (await look(connection, settings, pipeline)).tables


class DiscoveredTables(NamedTuple):
    """The tables that the file names."""

    tables: list[CapturedTable]
    refused: list[RefusedTable]
    """Tables that are left out."""
    catalog: Catalog


async def look(
    connection: PgConnection,
    settings: PostgresSettings,
    pipeline: str,
    *,
    refusal: FormCheck = anything_goes,
) -> DiscoveredTables:
    publication = publication_name(settings, pipeline)
    with in_our_words("the tables cannot be looked up"):
        book = await TypeMap.load(connection, settings)
        catalog = Catalog(settings.tables, settings.keys, publication, book)
        found, refused = await catalog.tables(connection)
        published = await published_tables.look(connection, publication)
        refused += await refused_of(connection, found, published)
        refused += await without_rights(connection, settings, found, published, publication)
    for each in found:
        if (error := await refusal(each.schema)) is not None:
            refused.append(RefusedTable(each.oid, each.table, error.statement, error.hint))
    left_out = {each.oid for each in refused}
    return DiscoveredTables([each for each in found if each.oid not in left_out], refused, catalog)


async def wal_end(connection: PgConnection) -> int:
    """Returns the end of the write-ahead log: every earlier commit has its record before it. On a
    standby it is the end of the commits that it shows."""
    with in_our_words("the server does not say where its write-ahead log ends"):
        cursor = await connection.execute(WAL_END)
        row = await cursor.fetchone()
    assert row is not None, "a question for one value has one row as an answer"
    return parse_lsn(row[0])


async def advance(settings: PostgresSettings, slot: str, place: int) -> None:
    """Confirms to a slot without a reader."""
    async with open_connection(settings) as connection:
        command = sql.SQL("SELECT pg_catalog.pg_replication_slot_advance({}, {})").format(
            sql.Literal(slot), sql.Literal(lsn_text(place))
        )

        async def attempt() -> None:
            with in_our_words("the slot cannot be advanced", slot=slot):
                await connection.execute(command)

        await replication_slot.once_left(attempt)


async def drop(settings: PostgresSettings, pipeline: str) -> Sequence[str]:
    """Drops the slot and the publication, unless they were given by the user."""
    slot = replication_slot.slot_name(settings, pipeline)
    publication = publication_name(settings, pipeline)
    gone = []
    async with open_connection(settings) as connection:
        if await replication_slot.once_left(lambda: replication_slot.drop(connection, slot)):
            gone.append(f"replication slot {slot}")
        if await manage.drop(connection, settings, publication):
            gone.append(f"publication {publication}")
    return gone
