"""Replica identities, by which the server identifies changed rows, and tables without a usable
one."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, quoted_table
from headwater.core_log.model.table_schema import TableId

IDENTITIES = """
WITH wanted AS (
    SELECT c.oid FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN unnest(%s::text[], %s::text[]) AS w (namespace, name)
        ON w.namespace = n.nspname AND w.name = c.relname
), leaves AS (
    SELECT oid FROM wanted
    UNION SELECT t.relid::oid FROM wanted, pg_catalog.pg_partition_tree(wanted.oid) t
)
SELECT n.nspname, c.relname, CASE
    WHEN c.relreplident <> 'f' AND i.indexrelid IS NULL THEN 'nothing'
    ELSE (SELECT max(a.attgenerated::text) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
        AND (c.relreplident = 'f' OR a.attnum = ANY (i.indkey)))
    END
FROM leaves
JOIN pg_catalog.pg_class c ON c.oid = leaves.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary AND i.indimmediate
    WHEN 'i' THEN i.indisreplident AND i.indislive
    ELSE false END
WHERE c.relkind = 'r'
ORDER BY n.nspname, c.relname
"""
"""Obstacles in the replica identities of tables and their partitions, each of which has its own. A
deferrable primary key does not count as one."""
NO_IDENTITY, OF_STORED, OF_VIRTUAL = "nothing", "s", "v"
"""There is none; or it has generated columns, stored ones or at least one virtual one."""


class TableWithoutIdentity(NamedTuple):
    """Tables, or partitions, whose changed rows the server cannot identify. If one is published, it
    refuses every UPDATE and DELETE of it."""

    tables: Sequence[TableId]
    why: str
    hint: str


async def identities_of(
    connection: PgConnection, tables: Collection[TableId]
) -> dict[TableId, str]:
    names = [[each.namespace for each in tables], [each.name for each in tables]]
    with in_our_words("the server does not show its tables"):
        found = await connection.execute(IDENTITIES, names)
        return {TableId(schema, table): kind for schema, table, kind in await found.fetchall()}


async def find_unidentified(
    connection: PgConnection, tables: Collection[TableId]
) -> TableWithoutIdentity | None:
    identities = await identities_of(connection, tables)
    for kind in (NO_IDENTITY, OF_VIRTUAL):
        if found := [table for table, own in identities.items() if own == kind]:
            return TableWithoutIdentity(found, *reason_of(kind, found))
    return None


def reason_of(kind: str, tables: Collection[TableId]) -> tuple[str, str]:
    """Returns why tables with an identity of that kind cannot be published, and the cure."""
    if kind == NO_IDENTITY:
        why = "have neither a primary key nor another replica identity"
        return why, identity_cure(tables)
    why = "have virtual generated columns, and REPLICA IDENTITY FULL"
    return why, identity_cure(tables, "DEFAULT")


def identity_cure(tables: Iterable[TableId], identity: str = "FULL") -> str:
    return " ".join(
        f"ALTER TABLE {quoted_table(each)} REPLICA IDENTITY {identity};" for each in tables
    )
