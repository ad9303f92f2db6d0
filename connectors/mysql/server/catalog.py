"""The tables to capture, from information_schema."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.types.column_definition import ColumnDefinition
from headwater.connectors.mysql.types.column_plan import MysqlColumnPlan, plan_of
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.foundation.name_patterns import Pattern, Patterns
from headwater.core_log.model.table_schema import TableId, TableSchema

SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
SHADOWS = re.compile(r"_.+_(gho|ghc|del|new|old)$|~.*|_.+_\d{14}_del$")
"""Copies of gh-ost and pt-online-schema-change, of which one takes the table's place at the end."""

TABLES = """
SELECT table_schema, table_name, table_type, table_rows, data_length
FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
"""
COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable,
       character_set_name, character_octet_length, numeric_precision, numeric_scale,
       datetime_precision, extra
FROM information_schema.columns WHERE {}
ORDER BY table_schema, table_name, ordinal_position
"""
KEYS = """
SELECT table_schema, table_name, index_name, column_name, nullable
FROM information_schema.statistics WHERE non_unique = 0 AND {}
ORDER BY table_schema, table_name, index_name, seq_in_index
"""
COLLATIONS = "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
MARIADB_COLLATIONS = (
    "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
    " WHERE id IS NOT NULL"
)
LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
ESCAPED = {"\\0": "\0", "\\n": "\n", "\\r": "\r", "\\\\": "\\", "''": "'"}
PRIMARY = "PRIMARY"
VERSIONED = "the table is system-versioned"


@dataclass(frozen=True, slots=True)
class MysqlTable:
    """A table chosen by the patterns."""

    schema: TableSchema
    definitions: tuple[ColumnDefinition, ...]
    """All columns, in the table's order."""
    plans: tuple[MysqlColumnPlan, ...]
    """Plans of the captured columns."""
    places: tuple[int, ...]
    """Places of the captured columns among all."""
    primary_key: tuple[str, ...]
    rows_estimate: int = 0
    bytes_estimate: int = 0
    problem: str = ""
    """Why it cannot be captured."""
    hint: str = ""

    @property
    def table(self) -> TableId:
        return self.schema.table

    def has_form_of(self, other: "MysqlTable") -> bool:
        return (self.definitions, self.schema.key) == (other.definitions, other.schema.key)

    def with_size_of(self, other: "MysqlTable") -> "MysqlTable":
        rows, size = other.rows_estimate, other.bytes_estimate
        return replace(self, rows_estimate=rows, bytes_estimate=size)

    def form(self) -> dict[str, Any]:
        """Returns what has to be stored to read rows of this form."""
        columns = [each.to_json() for each in self.definitions]
        return {"columns": columns, "key": list(self.schema.key), "pk": list(self.primary_key)}


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class MysqlCatalog:
    """Reads tables from the catalogue."""

    settings: MysqlSettings
    is_mariadb: bool

    def captures(self, table: TableId) -> bool:
        patterns = Patterns(self.settings.tables)
        name = str(table)
        if not patterns.matches(name) or table.namespace in SYSTEM:
            return False
        return not SHADOWS.fullmatch(table.name) or name in patterns.names

    def find_unmatched(self, tables: Iterable[TableId]) -> Diagnostic | None:
        """Returns what to say of names in `tables` that no captured table has."""
        missing = Patterns(self.settings.tables).find_unmatched([str(each)] for each in tables)
        if not missing:
            return None
        return Diagnostic(
            f"`tables` names what is not captured: {', '.join(missing)} does not exist, or the user"
            " may not SELECT from it",
            "correct `tables` as database.table, or GRANT SELECT ON database.* TO the user",
            is_fatal=False,
            left_out=tuple(missing),
        )

    def tables(self, connection: MysqlConnection) -> list[MysqlTable]:
        """Returns all captured tables, by name."""
        with in_our_words("the catalogue cannot be read"):
            rows = connection.rows(TABLES)
        found = {
            TableId(schema, name): (kind, int(count or 0), int(size or 0))
            for schema, name, kind, count, size in rows
            if self.captures(TableId(schema, name))
        }
        databases = sorted({table.namespace for table in found})
        if not databases:
            return []
        within = ", ".join(map(text_literal, databases))
        return self._read(connection, found, f"table_schema IN ({within})")

    def table(self, connection: MysqlConnection, table: TableId) -> MysqlTable | None:
        """Returns one table as it is now; None if there is no such table."""
        where = (
            f"table_schema = {text_literal(table.namespace)}"
            f" AND table_name = {text_literal(table.name)}"
        )
        with in_our_words("the catalogue cannot be read"):
            rows = connection.rows(f"{TABLES} AND {where}")
        found = {
            TableId(schema, name): (kind, int(count or 0), int(size or 0))
            for schema, name, kind, count, size in rows
        }
        if table not in found:
            return None
        tables = self._read(connection, {table: found[table]}, where)
        return tables[0] if tables else None

    def _read(
        self,
        connection: MysqlConnection,
        wanted: Mapping[TableId, tuple[str, int, int]],
        where: str,
    ) -> list[MysqlTable]:
        with in_our_words("the catalogue cannot be read"):
            columns = connection.rows(COLUMNS.format(where))
            keys = connection.rows(KEYS.format(where))
        indexes: dict[TableId, dict[str, list[tuple[str, bool]]]] = {}
        for schema, name, index, column, nullable in keys:
            of_table = indexes.setdefault(TableId(schema, name), {})
            of_table.setdefault(index, []).append((column, nullable == "YES"))
        grouped: dict[TableId, list[ColumnDefinition]] = {}
        for schema, name, *column in columns:
            grouped.setdefault(TableId(schema, name), []).append(definition_of(column))
        return [
            replace(
                self.capture(table, kind, grouped.get(table, []), indexes.get(table, {})),
                rows_estimate=count,
                bytes_estimate=size,
            )
            for table, (kind, count, size) in sorted(wanted.items())
        ]

    def capture(
        self,
        table: TableId,
        kind: str,
        definitions: Sequence[ColumnDefinition],
        indexes: Mapping[str, Sequence[tuple[str, bool]]],
    ) -> MysqlTable:
        """Returns the table with these columns and unique indexes, each of whose columns may be
        null or not."""
        primary = tuple(name for name, _ in indexes.get(PRIMARY, ()))
        key, problem, hint = primary, "", ""
        if not primary:
            key, problem, hint = self._chosen_key(table, indexes)
        if kind == "SYSTEM VERSIONED":
            problem, hint = VERSIONED, "leave it out of `tables`"
        found = table_of(
            table, definitions, key, primary, is_mariadb=self.is_mariadb, problem=problem
        )
        return replace(found, hint=hint or found.hint)

    def _chosen_key(
        self, table: TableId, indexes: Mapping[str, Sequence[tuple[str, bool]]]
    ) -> tuple[tuple[str, ...], str, str]:
        """Returns the key that the file chooses, or why there is none."""
        name = str(table)
        chosen = (
            columns for text, columns in self.settings.keys.items() if Pattern(text).matches(name)
        )
        key = tuple(next(chosen, ()))
        if not key:
            return (), "", ""
        for columns in indexes.values():
            if {each for each, _ in columns} == set(key) and not any(null for _, null in columns):
                return key, "", ""
        return (
            (),
            "no unique index without nulls has the columns of its `keys`",
            (
                f"ALTER TABLE {identifier(table.namespace)}.{identifier(table.name)} ADD UNIQUE"
                f" ({', '.join(map(identifier, key))})"
            ),
        )

    def charsets(self, connection: MysqlConnection) -> dict[int, str]:
        """Returns the character set of every collation, by number."""
        with in_our_words("the catalogue cannot be read"):
            found = connection.rows(COLLATIONS)
            if self.is_mariadb:
                found += [
                    row for row in _optional(connection, MARIADB_COLLATIONS) if row[1] is not None
                ]
        return {int(number): str(charset) for number, charset in found if charset is not None}


def _optional(connection: MysqlConnection, statement: str) -> list[tuple[Any, ...]]:
    """Returns nothing where the server has no such column."""
    import pymysql

    try:
        return connection.rows(statement)
    except pymysql.OperationalError:
        return []


def table_of(
    table: TableId,
    definitions: Sequence[ColumnDefinition],
    key: Sequence[str],
    primary: Sequence[str],
    *,
    is_mariadb: bool,
    problem: str = "",
) -> MysqlTable:
    """Returns a table of this form. MariaDB leaves generated columns out of some changes, so that
    they are not captured there."""
    marked = tuple(replace(each, is_key=each.name in key) for each in definitions)
    captured = [
        (place, each) for place, each in enumerate(marked) if not (is_mariadb and each.is_generated)
    ]
    if not marked:
        problem = problem or "the user may not SELECT from it"
    problem = problem or next((each.problem for _, each in captured if each.problem), "")
    if not problem and any(each.is_generated and is_mariadb for each in marked if each.is_key):
        problem = "a column of its key is generated"
    if problem:
        return MysqlTable(
            TableSchema(table, (), ()), marked, (), (), tuple(primary), problem=problem,
            hint="leave it out of `tables`",
        )  # fmt: skip
    plans = tuple(plan_of(each) for _, each in captured)
    schema = TableSchema(table, tuple(plan.column for plan in plans), tuple(key))
    return MysqlTable(schema, marked, plans, tuple(place for place, _ in captured), tuple(primary))


def restored_table(table: TableId, form: Mapping[str, Any], *, is_mariadb: bool) -> MysqlTable:
    definitions = [ColumnDefinition.from_json(each) for each in form["columns"]]
    return table_of(table, definitions, form["key"], form["pk"], is_mariadb=is_mariadb)


def definition_of(column: Sequence[Any]) -> ColumnDefinition:
    (name, data_type, column_type, nullable, charset, octets, precision, scale, fraction,
     extra) = column  # fmt: skip
    return ColumnDefinition(
        name,
        str(data_type).lower(),
        str(column_type),
        nullable == "YES",
        charset="" if str(data_type).lower() == "json" else charset or "",
        octets=int(octets or 0),
        precision=int(precision or 0),
        scale=int(scale or 0),
        fraction=int(fraction or 0),
        labels=labels_of(str(column_type)) if data_type in ("enum", "set") else (),
        is_generated="GENERATED" in str(extra or "").upper().replace("DEFAULT_GENERATED", ""),
    )


def labels_of(column_type: str) -> tuple[str, ...]:
    return tuple(
        re.sub(r"''|\\.", lambda found: ESCAPED.get(found[0], found[0]), label)
        for label in LABEL.findall(column_type)
    )


def rows_of(table: MysqlTable, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Returns the captured columns as rows. A key has no nulls at the server."""
    rows = pa.RecordBatch.from_arrays(list(columns), schema=table.schema.arrow)
    for name in table.schema.key:
        if rows.column(name).null_count:
            raise SourceRejected(
                "the key of a row is a date that no calendar has, and would be null",
                table=str(table.table),
                column=name,
                hint="correct the row, or leave the table out of `tables`",
            )
    return rows
