"""Checks of single tables: rights, hidden rows, and keys that are not streamed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.connectors.postgres.catalog import FULL, CapturedTable
from headwater.connectors.postgres.discovery import look
from headwater.connectors.postgres.publication import excluded_tables
from headwater.connectors.postgres.publication.replica_identity import findings_of, identity_cure
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words, quoted_table
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError, first_names
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableId

TABLES = """
SELECT n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
    pg_catalog.pg_has_role(c.relowner, 'USAGE')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname, c.relname
"""


class ExaminedTable(NamedTuple):
    table: TableId
    kind: str
    persistence: str
    is_owned: bool
    """Whether our role acts for the owner, which adding a table to a publication requires."""

    @property
    def is_streamed(self) -> bool:
        """Whether the table is in the write-ahead log at all."""
        return self.kind != "f" and self.persistence == "p"


async def examine_tables(
    connection: PgConnection,
    settings: PostgresSettings,
    pipeline: str,
) -> tuple[list[ExaminedTable], list[Diagnostic]]:
    """Returns the tables that would be captured, and the problems of these and other tables."""
    with in_our_words("the server does not show its tables"):
        rows = await (await connection.execute(TABLES)).fetchall()
    chosen = Patterns(settings.tables)
    matching = [
        ExaminedTable(TableId(schema, name), *rest)
        for schema, name, *rest in rows
        if chosen.matches(str(TableId(schema, name)))
    ]
    tables = [each for each in matching if each.is_streamed]
    about = await excluded_tables.look(connection, settings.tables)
    found = [each for each in about.values() if each is not None]
    if not tables:
        found.append(Diagnostic("no table matches `tables`", "correct `tables` of the source"))
    else:
        left_out, about_captured = await _about_captured(connection, settings, pipeline)
        tables = [each for each in tables if each.table not in left_out]
        found += about_captured
    return tables, found


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def _about_captured(
    connection: PgConnection, settings: PostgresSettings, pipeline: str
) -> tuple[set[TableId], list[Diagnostic]]:
    """Returns the tables that are left out, and the problems of all."""
    try:
        looked = await look(connection, settings, pipeline)
    except HeadwaterError as error:
        failed = Diagnostic(f"{error.problem} ({error.facts})", error.hint or "correct the source")
        return set(), [failed]
    found = list(findings_of(looked.refused))
    for each in looked.tables:
        found += _about_partitions(each)
        if not each.schema.key:
            found.append(
                Diagnostic(
                    f"{each.table} has no key: nothing tells its rows apart, so that it can only"
                    " be appended to its targets",
                    f"ALTER TABLE {quoted_table(each.table)} ADD PRIMARY KEY (...); or name"
                    " columns under `keys` of the source",
                    is_fatal=False,
                )
            )
    found += _about_size(looked.tables, settings.snapshot.reread_max_rows)
    return {each.table for each in looked.refused}, found


def _about_size(tables: Sequence[CapturedTable], rows_max: int | None) -> Iterator[Diagnostic]:
    """Names the tables that a schema change quarantines, as far as they were analyzed."""
    if rows_max is None:
        return
    large = [each for each in tables if (each.rows_estimate or 0) > rows_max]
    if large:
        yield Diagnostic(
            f"{first_names([each.table for each in large])}: more rows than"
            f" `snapshot.reread_max_rows` ({rows_max:,}), so a schema change that needs all rows"
            " quarantines the table",
            "raise `snapshot.reread_max_rows` of the source, or run headwater snapshot start"
            " PIPELINE/TABLE after such a change; headwater plan --ddl says what a change needs",
            is_fatal=False,
        )


def _about_partitions(table: CapturedTable) -> Iterator[Diagnostic]:
    """Checks the partitions: each has its own replica identity. The server refuses every change of
    one without any, which is reported for published ones."""
    narrow = {each.table for each in table.partitions if each.identity != FULL}
    nameless = {each.table for each in table.partitions if not each.index_columns}
    partial = sorted(narrow - nameless)
    if partial and table.identity == FULL:
        yield Diagnostic(
            f"{table.table} has REPLICA IDENTITY FULL and its partitions {first_names(partial)}"
            " have not: updates of those come without the row before, deletes with its key only",
            identity_cure(partial),
            is_fatal=False,
        )
