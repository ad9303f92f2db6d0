"""The publication: the published tables, and the published part of each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import first_names
from headwater.core_log.model.table_schema import TableId

OPERATIONS = ("insert", "update", "delete", "truncate")
NAME_BYTES_MAX = 63

LOOK = """
SELECT p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
    pg_catalog.pg_has_role(p.pubowner, 'USAGE'), p.oid::int8, to_jsonb(p) ->> 'pubgencols'
FROM pg_catalog.pg_publication p WHERE p.pubname = {name}
"""
STORED = "s"

MEMBERS = """
SELECT n.nspname, c.relname, r.oid::int8
FROM pg_catalog.pg_publication_rel r
JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = {name}
"""

SCHEMAS = """
SELECT n.nspname, s.oid::int8
FROM pg_catalog.pg_publication_namespace s
JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid
JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid
WHERE p.pubname = {name}
"""

COVERED = """
SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables WHERE pubname = {name}
"""

SHARES = """
SELECT c.oid::int8, n.nspname, c.relname,
    coalesce(pg_catalog.pg_get_expr(r.prqual, r.prrelid), ''), (
        SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)
    )
FROM pg_catalog.pg_publication_rel r
JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = {name} AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s
        WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)
    AND ({oids}::oid[] IS NULL OR c.oid = ANY({oids}::oid[]))
"""
"""Row filters have no effect for tables of a schema that is published as a whole. The server locks
a table for a moment to return its filter."""
PARTS_SINCE = 15_0000
"""Schemas, row filters and column lists exist since this version."""


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """The published part of a table that is not published completely."""

    oid: int
    table: TableId
    condition: str
    """SQL condition of the published rows; empty for all rows."""
    columns: tuple[str, ...] | None
    """None for all columns."""

    def __str__(self) -> str:
        rows = f"rows where {self.condition}" if self.condition else ""
        columns = "" if self.columns is None else f"columns {', '.join(self.columns)}"
        return f"only {' and '.join(filter(None, [rows, columns]))}"


@dataclass(frozen=True, slots=True)
class Publication:
    name: str
    covers_all: bool
    """It is FOR ALL TABLES."""
    goes_via_root: bool
    """Changes of partitions are sent as changes of the partitioned table."""
    operations: frozenset[str]
    is_ours: bool
    """Whether our role is its owner, or acts for the owner."""
    members: Mapping[TableId, int]
    """Tables that were added one by one, with the oids of their entries."""
    schemas: Mapping[str, int]
    """Schemas that were added as a whole, with the oids of their entries."""
    covered: frozenset[TableId]
    """Tables that it publishes in any way."""
    shares: Mapping[TableId, PublishedPart]
    """Published parts of tables with unpublished rows or columns."""
    number: int
    """Its oid, which changes if it is dropped and recreated."""
    could_send_generated: bool
    """It does not send stored generated columns, but could."""


def publication_name(settings: PostgresSettings, pipeline: str) -> str:
    name = settings.publication.name or f"headwater_{pipeline}"
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")


async def look(connection: PgConnection, name: str) -> Publication | None:
    wanted = {"name": sql.Literal(name)}
    with in_our_words("the server does not show its publications"):
        found = await connection.execute(sql.SQL(LOOK).format(**wanted))
        row = await found.fetchone()
        if row is None:
            return None
        found = await connection.execute(sql.SQL(MEMBERS).format(**wanted))
        members = await found.fetchall()
        schemas = []
        if connection.info.server_version >= PARTS_SINCE:
            found = await connection.execute(sql.SQL(SCHEMAS).format(**wanted))
            schemas = await found.fetchall()
        found = await connection.execute(sql.SQL(COVERED).format(**wanted))
        covered = await found.fetchall()
        shares = await look_for_shares(connection, name)
    covers_all, goes_via_root, *sends, is_ours, number, generated = row
    return Publication(
        name=name,
        covers_all=covers_all,
        goes_via_root=goes_via_root,
        operations=frozenset(
            each for each, is_sent in zip(OPERATIONS, sends, strict=True) if is_sent
        ),
        is_ours=is_ours,
        members={TableId(schema, table): entry for schema, table, entry in members},
        schemas=dict(schemas),
        covered=frozenset(TableId(schema, table) for schema, table in covered),
        shares={each.table: each for each in shares},
        number=number,
        could_send_generated=generated not in (STORED, None),
    )


async def look_for_shares(
    connection: PgConnection, name: str, oids: Sequence[int] | None = None
) -> list[PublishedPart]:
    """Returns the published parts at present, because tables and columns may have been renamed.
    `oids`: of these tables only."""
    if connection.info.server_version < PARTS_SINCE:
        return []
    of = None if oids is None else list(oids)
    query = sql.SQL(SHARES).format(name=sql.Literal(name), oids=sql.Literal(of))
    found = await connection.execute(query)
    return [
        PublishedPart(
            oid, TableId(schema, table), condition, None if columns is None else tuple(columns)
        )
        for oid, schema, table, condition, columns in await found.fetchall()
    ]


def describe_left_out(found: Publication, tables: Collection[TableId]) -> str:
    """Returns a description of the unpublished parts of these; empty if it sends everything."""
    names = sorted(found.shares.keys() & set(tables))
    if not names:
        return ""
    shown = first_names([f"{each} ({found.shares[each]})" for each in names])
    return f"publication {found.name} leaves out rows or columns of {shown}"


def missing_from(found: Publication, tables: Collection[TableId]) -> list[TableId]:
    return sorted(set(tables) - found.covered)


def covers(found: Publication, tables: Collection[TableId]) -> bool:
    """Whether every change of these is sent, as a change of the table that the file names."""
    is_whole = found.goes_via_root and found.operations == set(OPERATIONS)
    return is_whole and not missing_from(found, tables)
