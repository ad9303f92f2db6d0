"""Finds the effects of an ALTER TABLE by trying it on an empty copy of the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.ddl_statement import AlterTable, parse_ddl
from headwater.connectors.postgres.discovery import DiscoveredTables, look, open_connection
from headwater.connectors.postgres.publication import published_tables
from headwater.connectors.postgres.publication.published_tables import publication_name
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.schema_monitor import is_in_place
from headwater.connectors.postgres.schema_history.table_definition import (
    LOST_KEY,
    OTHER_KEY,
    Cause,
    TableForm,
    why_read_again,
)
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.chunk_planner import estimate_of
from headwater.connectors.schema_changes import (
    FOLLOWED,
    IN_PLACE,
    LEFT_OUT,
    NEW_TOPIC,
    READ_AGAIN,
    not_captured,
    not_there,
    with_cost,
    without_rows,
)
from headwater.connectors.source import NEW_KEY, DdlOutcome, SourceContext
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
LIMITS = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '30s'"
BROUGHT = "the stream brings it"


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


async def rehearse(
    settings: PostgresSettings, context: SourceContext, statements: Sequence[str]
) -> list[DdlOutcome]:
    """Returns one outcome per table, for all of its statements together. Nothing stays at the
    server."""
    parsed = [parse_ddl(each) for each in statements]
    async with open_connection(settings) as connection:
        looked = await look(connection, settings, context.pipeline)
        found: list[DdlOutcome] = []
        for table, own in await _by_table(connection, looked, parsed):
            rehearsal = _Rehearsal(connection, settings, context, looked, table)
            found += [
                DdlOutcome(table.table, each.text, *_known(each.known, is_part=oid != table.oid))
                for oid, each in own
                if each.known is not None
            ]
            tried = [each for _, each in own if each.known is None]
            if tried:
                found.append(await rehearsal.outcome(tried))
    return found


async def _by_table(
    connection: PgConnection, looked: DiscoveredTables, statements: Sequence[AlterTable]
) -> list[tuple[CapturedTable, list[tuple[int, AlterTable]]]]:
    """Groups the statements by the numbers of their tables. Statements about a partition belong to
    the partitioned table."""
    tables = {part.oid: each for each in looked.tables for part in each.partitions}
    tables |= {each.oid: each for each in looked.tables}
    by_table: dict[int, list[tuple[int, AlterTable]]] = {}
    for each in statements:
        oid = await _oid_of(connection, each.table)
        if oid not in tables:
            raise not_captured(each.table)
        by_table.setdefault(tables[oid].oid, []).append((oid, each))
    return [(tables[oid], own) for oid, own in by_table.items()]


def _known(said: tuple[str, str], *, is_part: bool) -> tuple[str, str]:
    """Returns the table; a partition counts as its partitioned table."""
    if is_part and said[0] in (NEW_TOPIC, LEFT_OUT):
        return FOLLOWED, "a partition goes by the name of its table"
    return said


async def _oid_of(connection: PgConnection, name: str) -> int:
    with in_our_words("a table cannot be looked up", table=name):
        [[oid]] = await (await connection.execute(OID, [name])).fetchall()
    if oid is None:
        raise not_there(name)
    return int(oid)


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """The rehearsal for one table."""

    connection: PgConnection
    settings: PostgresSettings
    context: SourceContext
    looked: DiscoveredTables
    table: CapturedTable

    async def outcome(self, statements: Sequence[AlterTable]) -> DdlOutcome:
        may_be_unlogged = await self._may_be_unlogged()
        with in_our_words("the statement cannot be tried on a copy", table=str(self.table.table)):
            async with self.connection.transaction(force_rollback=True):
                await self.connection.execute(LIMITS)
                copy = await copy_of(self.connection, self.table, self.looked.catalog)
                before = await self._form(copy, may_be_unlogged=may_be_unlogged)
                for each in statements:
                    await self._try(copy, each)
                after = await self._form(copy, may_be_unlogged=may_be_unlogged)
                now = await self.looked.catalog.tables_of(self.connection, [copy.oid])
        schema = copy.schema_of(now[0]) if now else None
        cause = why_read_again(before, after)
        text = "; ".join(each.text for each in statements)
        if not cause.why:
            return DdlOutcome(self.table.table, text, FOLLOWED, BROUGHT, schema=schema)
        if cause.why == LOST_KEY:
            return DdlOutcome(self.table.table, text, LEFT_OUT, f"{LOST_KEY}, until it has one")
        outcome = NEW_KEY if cause.why == OTHER_KEY else READ_AGAIN
        said = DdlOutcome(self.table.table, text, outcome, cause.why, schema=schema)
        may_read = self.settings.snapshot.mode != "never"
        if may_read and now and is_in_place(now[0], cause, self.context):
            return replace(said, outcome=IN_PLACE, why=f"{cause.why}; its rows are not read")
        return await self._with_cost(said, cause)

    async def _with_cost(self, said: DdlOutcome, cause: Cause) -> DdlOutcome:
        snapshot = self.settings.snapshot
        if snapshot.mode == "never":
            return without_rows(said, "the log would differ from the table")
        free = self.context.free_space()
        estimate = await estimate_of(self.connection, self.table.oid, snapshot, free)
        rows_max = snapshot.reread_max_rows
        return with_cost(said, cause.kinds, estimate, rows_max=rows_max, context=self.context)

    async def _try(self, copy: TableCopy, statement: AlterTable) -> None:
        """Tries a statement in a transaction of its own, so that the catalog shows what it
        altered."""
        target = name_of(await _oid_of(self.connection, statement.table))
        action = sql.SQL(_verbatim(statement.action)).format()
        if statement.verb:
            part = await _oid_of(self.connection, statement.partition)
            if statement.verb == "ATTACH":
                await self._copy_alone(part, statement.partition)
            action = sql.SQL("{} PARTITION {} {}").format(
                sql.SQL(statement.verb), name_of(part), sql.SQL(_verbatim(statement.rest)).format()
            )
        command = sql.SQL("ALTER TABLE {} {}").format(target, action)
        async with self.connection.transaction():
            # the driver then accepts one statement only
            await self.connection.execute(command, prepare=True)

    async def _copy_alone(self, oid: int, name: str) -> None:
        command = sql.SQL("CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING ALL)")
        await self.connection.execute(
            command.format(name_of(oid), sql.SQL(_verbatim(name)).format())
        )

    async def _form(self, copy: TableCopy, *, may_be_unlogged: bool) -> TableForm:
        chosen = replace(self.table.schema, key=copy.key_of_file)
        copied = replace(self.table, oid=copy.oid, schema=chosen)
        [form] = (await table_definition.look(self.connection, [copied])).values()
        return replace(form, may_be_unlogged=may_be_unlogged)

    async def _may_be_unlogged(self) -> bool:
        """Whether the table may become unlogged; not if a run would publish it by its name."""
        name = publication_name(self.settings, self.context.pipeline)
        if await published_tables.look(self.connection, name) is None:
            return False
        forms = await table_definition.look(self.connection, [self.table])
        return forms[self.table.table].may_be_unlogged


def _verbatim(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
