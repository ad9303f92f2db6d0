"""An empty temporary copy of a table, on which an ALTER TABLE is tried."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pymysql

from headwater.connectors.mysql.server.catalog import (
    MysqlCatalog,
    MysqlTable,
    definition_of,
    identifier,
)
from headwater.connectors.mysql.server.connection import (
    RIGHTS,
    MysqlConnection,
    code_of,
    in_our_words,
)
from headwater.connectors.mysql.types.column_definition import (
    BINARY,
    TEXT_LENGTHS,
    TIMES,
    ColumnDefinition,
)
from headwater.core_log.foundation.errors import SourceRejected

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
