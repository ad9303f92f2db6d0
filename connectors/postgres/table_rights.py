"""Tables that our role may not read, or not add to the publication: each is left out alone."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.publication.uncapturable_tables import RefusedTable
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.server.sql_identifiers import member_list, quote, table_list
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import first_names
from headwater.core_log.model.table_schema import TableId

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
