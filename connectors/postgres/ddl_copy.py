"""An empty copy of a table's structure, on which DDL is tried and then rolled back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.core_log.model.table_schema import TableSchema

TREE = """
WITH RECURSIVE tree AS (
    SELECT oid, 0::oid AS parent, 0 AS depth FROM pg_catalog.pg_class WHERE oid = %(oid)s
    UNION ALL
    SELECT i.inhrelid, i.inhparent, depth + 1 FROM tree
    JOIN pg_catalog.pg_class p ON p.oid = tree.oid AND p.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.oid::int8, tree.parent::int8, n.nspname, c.relname,
    pg_catalog.pg_get_expr(c.relpartbound, c.oid), pg_catalog.pg_get_partkeydef(c.oid)
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY depth, tree.oid
"""
NUMBERS = """
SELECT attnum::int8, relnatts::int8
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
CONSTRAINTS = """
SELECT conname::text, contype::text, pg_catalog.pg_get_constraintdef(oid)
FROM pg_catalog.pg_constraint
WHERE conrelid = %s AND contype IN ('p', 'u', 'x', 'f') AND conparentid = 0 ORDER BY conname
"""
OID = "SELECT pg_catalog.to_regclass(%s)::oid::int8"


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A temporary copy, dropped with its transaction. The table itself only gets the shared lock of
    a SELECT."""

    table: CapturedTable
    oid: int
    numbers: Sequence[int]
    """Numbers of the table's columns, in the order of the copy's."""
    numbers_max: int
    """The highest column number of the table, including dropped columns."""
    key_of_file: tuple[str, ...]
    """The table's key if it has no primary key."""

    def schema_of(self, now: CapturedTable) -> TableSchema:
        """Returns the schema of the copy as the table would have it: under its name, with the ids
        of its columns."""
        before = {each.number: each for each in self.table.columns}
        captured = {each.name for each in self.table.schema.columns}
        columns = tuple(
            replace(column, id=number)
            for column in now.schema.columns
            for number in [self._number(column.id)]
            if number not in before or before[number].name in captured
        )
        names = {each.name for each in columns}
        key = now.schema.key or self.key_of_file
        key = key if names.issuperset(key) else ()
        return TableSchema(self.table.table, columns, key, id=self.table.schema.id)

    def _number(self, number: int) -> int:
        if number <= len(self.numbers):
            return self.numbers[number - 1]
        return self.numbers_max + number - len(self.numbers)


async def copy_of(connection: PgConnection, table: CapturedTable, catalog: Catalog) -> TableCopy:
    """Copies the table with partitions, defaults, indexes, and constraints under their names."""
    rows = await _asked(connection, TREE, {"oid": table.oid})
    for oid, parent, namespace, name, bound, key in rows:
        divided = sql.SQL(f" PARTITION BY {key}" if key else "")
        if parent:
            made = sql.SQL("PARTITION OF {} {}").format(name_of(parent), sql.SQL(bound))
        else:
            original = sql.Identifier(namespace, name)
            made = sql.SQL("(LIKE {} INCLUDING ALL)").format(original)
        await connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} {}{}").format(name_of(oid), made, divided)
        )
    [[oid]] = await _asked(connection, OID, [name_of(table.oid).as_string(connection)])
    await _keep_names(connection, table.oid, oid)
    numbers = await _asked(connection, NUMBERS, [table.oid])
    key = table.schema.key
    if table.primary_key:
        key = catalog.key_of_file(table.table)
    return TableCopy(table, oid, [number for number, _ in numbers], numbers[0][1], key)


def name_of(oid: int) -> sql.Identifier:
    """Returns the copy's name of the table with this number."""
    return sql.Identifier("pg_temp", f"copy_{oid}")


async def _keep_names(connection: PgConnection, original: int, copy: int) -> None:
    """A check replaces a foreign key, which would lock the other table."""
    there = await _asked(connection, CONSTRAINTS, [copy])
    for name, kind, definition in await _asked(connection, CONSTRAINTS, [original]):
        place = name_of(original)
        if kind == "f":
            command = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} CHECK (true)")
            await connection.execute(command.format(place, sql.Identifier(name)))
            continue
        same = next((each for each in there if each[1:] == (kind, definition)), None)
        if same is not None:
            there.remove(same)
            if same[0] != name:
                command = sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}")
                old, new = sql.Identifier(same[0]), sql.Identifier(name)
                await connection.execute(command.format(place, old, new))


async def _asked(connection: PgConnection, query: str, parameters: Any) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()
