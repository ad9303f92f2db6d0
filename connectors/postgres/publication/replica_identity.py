"""Replica identities, which name changed rows, and tables that cannot be captured without one."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, quoted_table
from headwater.core_log.foundation.errors import Diagnostic, first_names
from headwater.core_log.model.table_schema import TableId

if TYPE_CHECKING:
    from headwater.connectors.postgres.catalog import CapturedTable

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

REFUSES = "once published, the server would refuse every UPDATE and DELETE of tables that"


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
            return TableWithoutIdentity(found, *_reason_of(kind, found))
    return None


def _reason_of(kind: str, tables: Collection[TableId]) -> tuple[str, str]:
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


@dataclass(frozen=True, slots=True)
class RefusedTable:
    """One table, and the reason why it cannot be captured."""

    oid: int
    table: TableId
    problem: str
    """Text for one message about several tables with the same problem."""
    hint: str


async def refused_of(
    connection: PgConnection, tables: Sequence["CapturedTable"], publication: Publication | None
) -> list[RefusedTable]:
    """Returns tables whose rows could not be identified in changes, or whose changes the server
    would refuse once they are published."""
    found = [each for table in tables for each in _by_key(table)]
    return found + await _by_identity(connection, tables, publication)


def _by_key(table: "CapturedTable") -> Iterator[RefusedTable]:
    key, sent = table.schema.key, set(table.identity_columns)
    if sent and (missing := [name for name in key if name not in sent]):
        yield RefusedTable(
            table.oid,
            table.table,
            f"changed or deleted rows are sent without {', '.join(missing)}, of their key",
            identity_cure([table.table]),
        )
    elif keyless := table.keyless_partitions:
        yield RefusedTable(
            table.oid,
            table.table,
            f"deleted rows of {first_names(keyless)}, of {table.table}, are sent without all of"
            f" their key ({', '.join(key)})",
            identity_cure(keyless),
        )


async def _by_identity(
    connection: PgConnection, tables: Sequence["CapturedTable"], publication: Publication | None
) -> list[RefusedTable]:
    """Checks only tables that are not published yet: the owner of a publication knows the effect on
    the others."""
    members = {part.table: each for each in tables for part in each.partitions}
    members |= {each.table: each for each in tables}
    kinds = await identities_of(connection, [each.table for each in tables])
    without = {name: kind for name, kind in kinds.items() if kind in (NO_IDENTITY, OF_VIRTUAL)}
    if not any(name in members for name in without):
        return []
    covered = frozenset[TableId]() if publication is None else publication.covered
    found: dict[TableId, tuple[CapturedTable, str, list[TableId]]] = {}
    for name, kind in without.items():
        table = members.get(name)
        if table is not None and table.table not in covered:
            found.setdefault(table.table, (table, kind, []))[2].append(name)
    return [
        RefusedTable(table.oid, table.table, f"{REFUSES} {why}", hint)
        for table, kind, names in found.values()
        for why, hint in [_reason_of(kind, names)]
    ]


def findings_of(refused: Collection[RefusedTable]) -> Iterator[Diagnostic]:
    """Returns one diagnostic for all tables with the same reason and hint."""
    tables = dict[tuple[str, str], list[TableId]]()
    for each in refused:
        tables.setdefault((each.problem, each.hint), []).append(each.table)
    for (problem, hint), names in tables.items():
        are = "is" if len(names) == 1 else "are"
        yield Diagnostic(f"{first_names(sorted(names))} {are} left out: {problem}", hint)


def finding_of(refused: Collection[RefusedTable]) -> Diagnostic | None:
    """Returns one remark for all of them, while the source captures the others."""
    if not refused:
        return None
    tables = dict[str, list[TableId]]()
    for each in refused:
        tables.setdefault(each.problem, []).append(each.table)
    said = [f"{first_names(sorted(names))}: {problem}" for problem, names in tables.items()]
    cures = dict.fromkeys(each.hint for each in refused)
    return Diagnostic(
        f"tables match `tables` and are left out, as they cannot be captured: {'; '.join(said)}",
        f"{' '.join(filter(None, cures))} Or leave them out of `tables`. Once cured they are read"
        " by themselves",
        is_fatal=False,
        left_out=tuple(sorted({str(each.table) for each in refused})),
    )
