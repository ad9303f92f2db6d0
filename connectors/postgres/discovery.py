"""Work at a database beside reading it: finds tables, advances the slot, drops our objects."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.publication import manage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication, publication_name
from headwater.connectors.postgres.publication.replica_identity import RefusedTable, refused_of
from headwater.connectors.postgres.server.connection import (
    PgConnection,
    connect,
    in_our_words,
    member_list,
    quote,
    table_list,
)
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.connectors.source import FormCheck, anything_goes
from headwater.core_log.foundation.errors import first_names
from headwater.core_log.model.table_schema import TableId

WAL_END = """
SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
    ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""
TABLES = """
WITH wanted AS (
    SELECT oid FROM pg_catalog.unnest(%s::oid[]) AS oid
), members AS (
    SELECT oid AS root, oid FROM wanted
    UNION SELECT wanted.oid, t.relid::oid
    FROM wanted, pg_catalog.pg_partition_tree(wanted.oid) t WHERE t.isleaf
)
SELECT members.root::int8, n.nspname, c.relname,
    pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
    pg_catalog.has_table_privilege(c.oid, 'SELECT'),
    pg_catalog.row_security_active(c.oid),
    pg_catalog.pg_has_role(c.relowner, 'USAGE')
FROM members
JOIN pg_catalog.pg_class c ON c.oid = members.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p')
ORDER BY n.nspname, c.relname
"""
"""Rows are read from each partition, not through the partitioned table."""
ROLE = """
SELECT current_user::text, pg_catalog.pg_is_in_recovery(),
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
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


class Rights(NamedTuple):
    """The rights on a captured table, or on one of its partitions. None: it was dropped
    meanwhile."""

    root: int
    table: TableId
    sees_schema: bool | None
    may_select: bool | None
    hides_rows: bool
    is_owned: bool
    """Whether our role acts for the owner, which adding a table to a publication requires."""


async def without_rights(
    connection: PgConnection,
    settings: PostgresSettings,
    tables: Sequence[CapturedTable],
    publication: Publication | None,
    name: str,
) -> list[RefusedTable]:
    """Returns the tables without rights; `publication` is the present one of that `name`."""
    with in_our_words("the server does not show the rights of our role"):
        [[role, is_standby, may_create]] = await (await connection.execute(ROLE)).fetchall()
        cursor = await connection.execute(TABLES, [[each.oid for each in tables]])
        rights = [
            Rights(root, TableId(schema, table), *rest)
            for root, schema, table, *rest in await cursor.fetchall()
        ]
    found = [*_unreadable(tables, rights, role)]
    if publication is None:
        may_add = settings.publication.create == "auto" and may_create and not is_standby
        if not may_add:  # then no table can be captured, and the publication's error says so
            return found
    else:
        may_add = settings.publication.create == "auto" and publication.is_ours and not is_standby
    owned = {each.table for each in rights if each.is_owned} if may_add else set[TableId]()
    is_given = settings.publication.create == "never"
    why = "the file says that it is given" if is_given else f"role {role} may not add it"
    return found + _find_unpublished(tables, publication, name, owned, why)


def _unreadable(
    tables: Sequence[CapturedTable], rights: Sequence[Rights], role: str
) -> Iterator[RefusedTable]:
    def those(lacks: Callable[[Rights], bool]) -> dict[int, list[TableId]]:
        found: dict[int, list[TableId]] = {}
        for each in filter(lacks, rights):
            found.setdefault(each.root, []).append(each.table)
        return found

    if closed := those(lambda each: each.sees_schema is False):
        names = sorted({each.namespace for members in closed.values() for each in members})
        schemas = ", ".join(map(quote, names))
        hint = f"GRANT USAGE ON SCHEMA {schemas} TO {quote(role)};"
        yield from _refusal_of(
            tables, closed, f"role {role} has no USAGE right on its schema", hint
        )
    if unread := those(lambda each: each.may_select is False):
        names_of = sorted({each for members in unread.values() for each in members})
        hint = f"GRANT SELECT ON TABLE {table_list(names_of)} TO {quote(role)};"
        yield from _refusal_of(tables, unread, f"role {role} has no SELECT right", hint)
    if hidden := those(lambda each: each.hides_rows):
        hint = f"ALTER ROLE {quote(role)} BYPASSRLS;"
        yield from _refusal_of(tables, hidden, f"row security hides rows from role {role}", hint)


def _refusal_of(
    tables: Sequence[CapturedTable], lacking: dict[int, list[TableId]], problem: str, hint: str
) -> Iterator[RefusedTable]:
    """Returns the refusal; it names partitions unless the table itself lacks the right."""
    for each in tables:
        if members := lacking.get(each.oid):
            of = "" if each.table in members else f", on partitions {first_names(members)}"
            yield RefusedTable(each.oid, each.table, problem + of, hint)


def _find_unpublished(
    tables: Sequence[CapturedTable],
    publication: Publication | None,
    name: str,
    owned: Collection[TableId],
    why: str,
) -> list[RefusedTable]:
    """Returns unpublishable tables, for a missing publication only if other tables can be
    published. Without publish_via_partition_root the partitions are checked in place of a table."""
    new = [each for each in tables if each.table not in owned]
    if publication is None:
        new = new if len(new) < len(tables) else []
    else:
        known = publication.covered | publication.members.keys()
        new = [
            each
            for each in new
            if each.table not in known and (publication.goes_via_root or each.relkind == "r")
        ]
    if not new:
        return []
    statement = f"ALTER PUBLICATION {quote(name)} ADD TABLE {member_list([e.table for e in new])};"
    problem = f"publication {name} does not publish it, and {why}"
    hint = f"{statement} (as the owner of publication and tables, or as a superuser)."
    return [RefusedTable(each.oid, each.table, problem, hint) for each in new]
