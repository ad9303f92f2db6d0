"""Finds the effects of an ALTER TABLE: the questions that the stream asks, of an empty copy."""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pymysql

from headwater.connectors.mysql.captured_tables import without_key
from headwater.connectors.mysql.resume_check import check_requirements
from headwater.connectors.mysql.schema_history.alter_table import (
    ActionKind,
    MysqlAlterTable,
    parse_alter,
)
from headwater.connectors.mysql.schema_history.mysql_statement import Name, read_statement
from headwater.connectors.mysql.schema_history.stream_forms import kinds_of_change
from headwater.connectors.mysql.server.catalog import (
    VERSIONED,
    MysqlCatalog,
    MysqlTable,
    definition_of,
    identifier,
)
from headwater.connectors.mysql.server.connection import (
    RIGHTS,
    MysqlConnection,
    code_of,
    connect,
    in_our_words,
)
from headwater.connectors.mysql.server.server_identity import identify
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.table_jobs import estimate_of
from headwater.connectors.mysql.types.column_definition import (
    BINARY,
    TEXT_LENGTHS,
    TIMES,
    ColumnDefinition,
)
from headwater.connectors.schema_changes import (
    ANOTHER_NAME,
    CHANGE_ROWS,
    FOLLOWED,
    LEFT_OUT,
    NEW_TOPIC,
    READ_AGAIN,
    not_captured,
    not_there,
    with_cost,
    without_rows,
)
from headwater.connectors.source import NEW_KEY, DdlOutcome, SourceContext
from headwater.core_log.foundation.errors import ConfigError, SourceRejected
from headwater.core_log.model.table_schema import TableId

ABSENT = re.compile(
    r",\n  (?:(?:FULLTEXT|VECTOR) (?:KEY|INDEX) `((?:[^`]|``)+)`"
    r"|CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY)[^\n]*?(?=,?\n)"
)
"""Lines of SHOW CREATE TABLE that a temporary table may not have."""
OPTIONS = re.compile(r"\n\) .*", re.DOTALL)
KEPT_OPTION = re.compile(r"\b(?:ENGINE|DEFAULT CHARSET|COLLATE)=\w+")
USER_MODE = "SET sql_mode = @@GLOBAL.sql_mode"
PLAIN_MODE = "SET sql_mode = ''"

WIDTHS = "SELECT character_set_name, maxlen FROM information_schema.character_sets"
TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")
LIMITS = "SET lock_wait_timeout = 2"
UNKNOWN_ROWS = "the server does not say which rows a statement changes"
CURED = "it can be captured from then on"
NAMED = "a statement names it, and the server does not say which rows that changes"
UNLOGGED = "the server does not log the statement"


@dataclass(frozen=True, slots=True)
class MysqlTableCopy:
    """It goes with its session. The binary log has nothing of it, since rows are logged as rows."""

    connection: MysqlConnection
    catalog: MysqlCatalog
    table: MysqlTable
    """The table itself."""
    name: str
    """Quoted, with the database."""
    absent: tuple[str, ...]
    """Indexes and foreign keys that the copy lacks, in lower case."""

    def form(self) -> MysqlTable:
        """Returns the table as it would be in the catalogue, if it were as the copy is."""
        columns = shown_columns(self.connection, self.name)
        indexes = shown_indexes(self.connection, self.name)
        return self.catalog.capture(self.table.table, "BASE TABLE", columns, indexes)

    def alter(self, actions: str, statement: str) -> None:
        with in_our_words("the statement cannot be tried on a copy", statement=statement):
            self.connection.execute(f"ALTER TABLE {self.name} {actions}")


def copy_of(
    connection: MysqlConnection, catalog: MysqlCatalog, table: MysqlTable
) -> MysqlTableCopy:
    """Copies the columns and keys. Raises SourceRejected if the copy is not like the table."""
    database = identifier(table.table.namespace)
    name = f"{database}.{identifier(f'headwater_copy_{uuid4().hex}')}"
    original = f"{database}.{identifier(table.table.name)}"
    with in_our_words("a table cannot be looked at", table=str(table.table)):
        connection.execute(PLAIN_MODE)
        [[_, made, *_]] = connection.rows(f"SHOW CREATE TABLE {original}")
    absent = tuple((index or key).lower() for index, key in ABSENT.findall(made))
    columns = ABSENT.sub("", made)
    columns = columns[columns.index("(") :]
    options = " ".join(KEPT_OPTION.findall(OPTIONS.search(columns)[0]))  # type: ignore[index]
    _create(connection, table, f"{name} {OPTIONS.sub('', columns)}\n) {options}")
    copy = MysqlTableCopy(connection, catalog, table, name, absent)
    with in_our_words("the server's own sql_mode cannot be taken"):
        connection.execute(USER_MODE)
    if not _is_alike(copy.form(), table):
        raise SourceRejected(
            "an empty copy of the table has other columns or keys, so that the statement cannot be"
            " tried",
            table=str(table.table),
        )
    return copy


def _create(connection: MysqlConnection, table: MysqlTable, copy: str) -> None:
    doing = "an empty temporary copy of the table cannot be made"
    try:
        connection.execute(f"CREATE TEMPORARY TABLE {copy}")
    except pymysql.MySQLError as error:
        if code_of(error)[0] in RIGHTS:
            database = identifier(table.table.namespace)
            raise SourceRejected(
                doing,
                table=str(table.table),
                why=code_of(error)[1],
                hint=f"GRANT CREATE TEMPORARY TABLES ON {database}.* TO the user",
            ) from None
        with in_our_words(doing, table=str(table.table)):
            raise


def _is_alike(copy: MysqlTable, table: MysqlTable) -> bool:
    if copy.problem or table.problem:
        return (copy.problem, copy.primary_key) == (table.problem, table.primary_key)
    forms = [
        [
            (each.name, each.column_type, each.is_nullable, each.charset, each.is_generated)
            for each in found.definitions
        ]
        for found in (copy, table)
    ]
    return forms[0] == forms[1] and copy.schema == table.schema


def shown_columns(connection: MysqlConnection, name: str) -> list[ColumnDefinition]:
    """Returns what the catalogue would say of the table; `name` is quoted."""
    with in_our_words("the columns of a copy cannot be read"):
        widths = {str(charset): int(width) for charset, width in connection.rows(WIDTHS)}
        rows = connection.rows(f"SHOW FULL COLUMNS FROM {name}")
    return [_definition(row, widths) for row in rows]


def shown_indexes(connection: MysqlConnection, name: str) -> dict[str, list[tuple[str, bool]]]:
    """Returns the columns of each unique index, and whether each may be null."""
    with in_our_words("the indexes of a copy cannot be read"):
        rows = connection.rows(f"SHOW INDEX FROM {name}")
    found: dict[str, list[tuple[str, bool]]] = {}
    for _, is_not_unique, index, _, column, _, _, _, _, nullable, *_ in rows:
        if not int(is_not_unique):
            found.setdefault(str(index), []).append((column, nullable == "YES"))
    return found


def _definition(row: Sequence[Any], widths: Mapping[str, int]) -> ColumnDefinition:
    name, column_type, collation, nullable, _, _, extra, *_ = row
    found = TYPE.match(column_type)
    assert found is not None, "a type begins with its name"
    kind = found[1].lower()
    size, scale = int(found[2] or 0), int(found[3] or 0)
    charset = str(collation or "").partition("_")[0]
    charset = "" if charset == BINARY else charset
    octets = size * widths.get(charset, 1)
    if kind in TEXT_LENGTHS:
        octets = 256 ** TEXT_LENGTHS[kind] - 1
    fraction = size if kind in TIMES else 0
    return definition_of(
        (name, kind, column_type, nullable, charset, octets, size, scale, fraction, extra)
    )


def rehearse(
    settings: MysqlSettings, context: SourceContext, statements: Sequence[str]
) -> list[DdlOutcome]:
    """Returns one outcome per table, for all of its statements together. Nothing stays at the
    server."""
    parsed = [parse_alter(each) for each in statements]
    with closing(connect(settings, name=f"headwater {context.pipeline} plan")) as connection:
        server = identify(connection)
        check_requirements(connection, server)
        with in_our_words("the limits of a session cannot be set"):
            connection.execute(LIMITS)
        catalog = MysqlCatalog(settings, server.is_mariadb)
        tables = {each.table: each for each in catalog.tables(connection)}
        rehearsal = _Rehearsal(connection, catalog, settings, context, tables)
        for each in parsed:
            rehearsal.add(each)
        return rehearsal.outcomes()


@dataclass(slots=True)
class _OfTable:
    """The statements that concern one table."""

    own: list[MysqlAlterTable] = field(default_factory=list)
    passing: list[MysqlAlterTable] = field(default_factory=list)
    """Those about other tables that name it."""


@dataclass(slots=True)
class _Rehearsal:
    connection: MysqlConnection
    catalog: MysqlCatalog
    settings: MysqlSettings
    context: SourceContext
    tables: Mapping[TableId, MysqlTable]
    _by_table: dict[TableId, _OfTable] = field(default_factory=dict)

    def add(self, statement: MysqlAlterTable) -> None:
        name = self._find(statement.table)
        self._check_syntax(name, statement.text)
        self._by_table.setdefault(name, _OfTable()).own.append(statement)
        if not statement.is_logged(is_mariadb=self.catalog.is_mariadb):
            return
        logged = read_statement(statement.text, name.namespace)
        for other, table in self.tables.items():
            if other != name and not table.problem and logged.may_name(other):
                self._by_table.setdefault(other, _OfTable()).passing.append(statement)

    def outcomes(self) -> list[DdlOutcome]:
        found = []
        for name, statements in self._by_table.items():
            table = self.tables[name]
            tried = []
            for each in statements.own:
                if (known := self._known(name, each)) is not None:
                    found.append(DdlOutcome(name, each.text, *known))
                else:
                    tried.append(each)
            if tried or statements.passing:
                found.append(self._outcome(table, tried, statements.passing))
        return found

    def _find(self, wanted: Name) -> TableId:
        """Returns the captured table of that name; without its database, if there is only one."""
        found = [
            each
            for each in self.tables
            if each.name == wanted.text and wanted.qualifier in ("", each.namespace)
        ]
        if len(found) == 1:
            return found[0]
        text = ".".join(filter(None, (wanted.qualifier, wanted.text)))
        if found:
            raise ConfigError(
                "the table's name is in several databases",
                table=text,
                hint=f"write the database before it, such as {found[0]}",
            )
        table = TableId(wanted.qualifier, wanted.text)
        if wanted.qualifier and self.catalog.table(self.connection, table) is None:
            raise not_there(text)
        raise not_captured(text)

    def _check_syntax(self, table: TableId, statement: str) -> None:
        """Has the server parse the statement; it does not run it."""
        with in_our_words("the statement cannot be parsed", statement=statement):
            for each in (
                USER_MODE,
                f"USE {identifier(table.namespace)}",
                f"SET @headwater = CONVERT(0x{statement.encode().hex()} USING utf8mb4)",
                "PREPARE headwater FROM @headwater",
                "DEALLOCATE PREPARE headwater",
            ):
                self.connection.execute(each)

    def _known(self, name: TableId, statement: MysqlAlterTable) -> tuple[str, str] | None:
        """Returns the effect of a statement that need not be tried."""
        if not statement.is_logged(is_mariadb=self.catalog.is_mariadb):
            return FOLLOWED, UNLOGGED
        if statement.has(ActionKind.VERSIONED):
            return LEFT_OUT, VERSIONED
        if (new := statement.renamed) is None:
            return None
        renamed = TableId(new.qualifier or name.namespace, new.text)
        if self.catalog.table(self.connection, renamed) is not None:
            raise SourceRejected(
                "a table of the new name is there already",
                table=str(renamed),
                hint="name another one",
            )
        if self.catalog.captures(renamed):
            return NEW_TOPIC, ANOTHER_NAME
        return LEFT_OUT, f"`tables` does not choose {renamed}"

    def _outcome(
        self,
        table: MysqlTable,
        tried: Sequence[MysqlAlterTable],
        passing: Sequence[MysqlAlterTable],
    ) -> DdlOutcome:
        forms = self._forms(table, tried)
        steps = pairwise(forms)
        found = [kind for before, after in steps for kind in kinds_of_change(before, after)]
        kinds = tuple(dict.fromkeys([*found, *([CHANGE_ROWS] if passing else [])]))
        text = "; ".join(each.text for each in (*tried, *passing))
        now = forms[-1]
        if table.schema.key and not (now.schema.key or now.problem):
            now = without_key(now)
        if now.problem:
            return DdlOutcome(table.table, text, LEFT_OUT, now.problem)
        has_other_key = not table.problem and not now.schema.has_key_of(table.schema)
        why = f"{UNKNOWN_ROWS} ({', '.join(kinds)})" if tried else NAMED
        said = DdlOutcome(
            table.table,
            text,
            NEW_KEY if has_other_key else READ_AGAIN,
            CURED if table.problem else why,
            schema=now.schema,
        )
        snapshot = self.settings.snapshot
        if snapshot.mode == "never":
            return without_rows(said, "the source stops")
        estimate = estimate_of(table, snapshot, self.context.free_space())
        rows_max = snapshot.reread_max_rows
        return with_cost(said, kinds, estimate, rows_max=rows_max, context=self.context)

    def _forms(self, table: MysqlTable, statements: Sequence[MysqlAlterTable]) -> list[MysqlTable]:
        """Returns the table before and after each statement."""
        forms, copy = [table], None
        for each in statements:
            if not each.actions_for_copy(()):
                forms.append(forms[-1])
                continue
            if copy is None:
                copy = self._copy(table)
                forms = [copy.form()] * len(forms)
            if actions := each.actions_for_copy(copy.absent):
                copy.alter(actions, each.text)
            forms.append(copy.form())
        return forms

    def _copy(self, table: MysqlTable) -> MysqlTableCopy:
        if table.problem == VERSIONED:
            raise SourceRejected(
                "a system-versioned table has no temporary copy, on which the statement could be"
                " tried",
                table=str(table.table),
            )
        return copy_of(self.connection, self.catalog, table)
