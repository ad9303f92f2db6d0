"""Finds the effects of an ALTER TABLE by trying it on an empty copy of the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psycopg import sql

from headwater.connectors.ddl_forecast import (
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
from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.ddl_copy import OID, TableCopy, copy_of, name_of
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
from headwater.connectors.source import NEW_KEY, DdlOutcome, SourceContext

LIMITS = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '30s'"
BROUGHT = "the stream brings it"


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
