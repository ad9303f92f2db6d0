"""Tables that match the file but are not streamed by the server, with the reason."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, quoted_table
from headwater.core_log.foundation.errors import Diagnostic, first_names
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableId

UNLOGGED, FOREIGN, MISNAMED = "unlogged tables", "foreign tables", "no tables"
"""Names of the remarks."""

RELATIONS = """
SELECT n.nspname, c.relname, c.relkind::text, c.relpersistence::text, m.nspname, r.relname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class r
    ON c.relispartition AND r.oid = pg_catalog.pg_partition_root(c.oid)
LEFT JOIN pg_catalog.pg_namespace m ON m.oid = r.relnamespace
WHERE c.relkind = 'f' OR (c.relkind IN ('r', 'p') AND c.relpersistence = 'u')
    OR (n.nspname || '.' || c.relname) = ANY(%(names)s)
    OR (c.relpersistence = 't' AND c.relname = ANY(%(lasts)s))
ORDER BY n.nspname, c.relname
"""

SYSTEM = re.compile("pg_|information_schema$")
KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}


class ExcludedRelation(NamedTuple):
    table: TableId
    kind: str
    persistence: str
    root: TableId | None
    """The partitioned table of a partition; its rows belong to that one."""


async def look(connection: PgConnection, texts: Sequence[str]) -> dict[str, Diagnostic | None]:
    """Returns the remarks for the file's patterns, by name."""
    chosen = Patterns(texts)
    names = chosen.names
    asked = {"names": names, "lasts": [each.rpartition(".")[2] for each in names]}
    with in_our_words("the server does not show its tables"):
        rows = await (await connection.execute(RELATIONS, asked)).fetchall()
    there = [
        ExcludedRelation(
            TableId(schema, name), kind, persistence, TableId(*root) if root[1] else None
        )
        for schema, name, kind, persistence, *root in rows
    ]
    meant = [each for each in there if chosen.matches(str(each.root or each.table))]
    return {
        UNLOGGED: _about_unlogged([each for each in meant if each.persistence == "u"]),
        FOREIGN: _about_foreign([each for each in meant if each.kind == "f"]),
        MISNAMED: _about_names([each for each in names if chosen.matches(each)], there),
    }


def _about_unlogged(relations: Sequence[ExcludedRelation]) -> Diagnostic | None:
    """Reports unlogged tables. A partitioned table holds no rows, and cannot become logged."""
    tables = [each.table for each in relations if each.root is None]
    parts = [each.table for each in relations if each.root is not None]
    roots = first_names(sorted({each.root for each in relations if each.root is not None}))
    said = []
    if tables:
        said.append(f"{first_names(tables)} match `tables` and are left out")
    if parts:
        said.append(f"those of {first_names(parts)}, partitions of {roots}, are missed")
    if not said:
        return None
    cures = [
        f"ALTER TABLE {quoted_table(each.table)} SET LOGGED;"
        for each in relations
        if each.kind == "r"
    ]
    if any(each.kind == "p" for each in relations):
        cures.append("make partitioned tables anew without UNLOGGED, and attach the partitions")
    if tables:
        cures.append("then end headwater run and start it again")
    if parts:
        cures.append(f"then have {roots} read again: headwater snapshot start PIPELINE/TABLE")
    return Diagnostic(
        "the server writes no changes of unlogged tables into its log: " + "; ".join(said),
        " ".join(cures),
        is_fatal=False,
        left_out=tuple(str(each.table) for each in relations),
    )


def _about_foreign(relations: Sequence[ExcludedRelation]) -> Diagnostic | None:
    if not relations:
        return None
    return Diagnostic(
        "the server streams no changes of foreign tables:"
        f" {first_names([each.table for each in relations])} are left out",
        "capture them at their own server, and leave them out of `tables` with"
        ' "!schema.table"; such a partition is not read at all',
        is_fatal=False,
        left_out=tuple(str(each.table) for each in relations),
    )


def _about_names(names: Sequence[str], there: Sequence[ExcludedRelation]) -> Diagnostic | None:
    """Reports missing names that are written literally in the file: a glob may match nothing."""
    known = {str(each.table): each for each in there}
    temporary = {each.table.name for each in there if each.persistence == "t"}
    said = {}
    for name in names:
        found = known.get(name)
        if found is None and name.rpartition(".")[2] in temporary:
            said[name] = f"{name} is a temporary table, of one session alone"
        elif found is None:
            said[name] = f"{name} does not exist"
        elif found.kind in KINDS:
            said[name] = f"{name} is {KINDS[found.kind]}: name the tables that it is of"
        elif found.persistence == "t":
            said[name] = f"{name} is a temporary table, of one session alone"
        elif found.root is not None:
            said[name] = f"{name} is a partition: its rows come as those of {found.root}"
        elif SYSTEM.match(found.table.namespace):
            said[name] = f"{name} is a table of the system"
    if not said:
        return None
    return Diagnostic(
        f"`tables` names what is not captured: {'; '.join(said.values())}",
        "correct `tables` of the source",
        is_fatal=False,
        left_out=tuple(said),
    )
