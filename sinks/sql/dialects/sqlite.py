"""SQLite: prepared statements run over tuples, in this process."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.table_schema import Column, TableId
from headwater.sinks.sql.database_values import DOUBLE_DIGITS, sqlite_rows, sqlite_values
from headwater.sinks.sql.dialects.dialect import (
    ColumnFit,
    Dialect,
    DriverProblem,
    ExistingTable,
    OwnershipMark,
    RowCondition,
    UpsertKey,
    column_list,
    conditions,
    fill_in,
    first_type,
    name_list,
    on_conflict,
    qualify,
    read_mark,
    run,
    text_literal,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

INTEGER, TEXT = ColumnFit("INTEGER", pa.int64()), ColumnFit("TEXT", pa.string())
CACHE_KIB = 16 << 10
ROWS_AT_ONCE = 64
"""Rows of one INSERT: the driver releases and takes the interpreter lock once per statement."""
BLOCK_ROWS = 64 * ROWS_AT_ONCE
"""Rows that are Python values at a time; these take several times the memory of columns."""

REKEYED = "_headwater_rekeyed"
"""Suffix of a table's name while its key changes; never visible to others."""
WIDENED = "_headwater_widened"
"""Suffix of a column's name while its type changes; never visible to others."""

AWAY = {"SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_NOMEM"}
AGAIN = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_SCHEMA"}
VALUE = {"SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG", "SQLITE_RANGE"}
KEYS = {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_ROWID"}


class SqliteDialect(Dialect):
    """SQLite. A table's mark is in the text of its CREATE TABLE, which SQLite keeps as written."""

    name = "sqlite"
    name_bytes_max = 1_000
    is_case_sensitive = False
    has_transactional_ddl = True
    keeps_marks = True
    join_sql = "CROSS JOIN"
    """It keeps SQLite from taking the sides in another order."""

    def prepare(self, connection: "sa.Connection") -> None:
        driver: Any = connection.connection.driver_connection
        driver.isolation_level = None  # transactions begin and end explicitly
        run(connection, "PRAGMA journal_mode = WAL")
        # A power cut may lose the newest commits, rows and offsets together: they are applied
        # again.
        run(connection, "PRAGMA synchronous = NORMAL")
        run(connection, f"PRAGMA cache_size = -{CACHE_KIB}")
        # A view keeps its meaning when two tables swap their names.
        run(connection, "PRAGMA legacy_alter_table = ON")

    def begin(self, connection: "sa.Connection") -> None:
        run(connection, "BEGIN IMMEDIATE")

    def interrupt(self, driver: Any, engine: "sa.Engine") -> None:
        driver.interrupt()

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit:
        kind = column.type
        if kind == pa.uint64():
            return TEXT
        if pa.types.is_boolean(kind):
            return ColumnFit("BOOLEAN", pa.bool_())
        if pa.types.is_integer(kind) or pa.types.is_duration(kind):
            return INTEGER
        if pa.types.is_floating(kind):
            return ColumnFit("DOUBLE", pa.float64())
        if pa.types.is_decimal(kind) and kind.precision <= DOUBLE_DIGITS and kind.scale >= 0:
            return ColumnFit(f"DECIMAL({kind.precision},{kind.scale})", kind)
        if pa.types.is_date(kind):
            return ColumnFit("DATE", pa.date32())
        if pa.types.is_timestamp(kind):
            return ColumnFit("TIMESTAMP", pa.timestamp("us"))
        if pa.types.is_time(kind):
            return ColumnFit("TIME", pa.time64("us"))
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return ColumnFit("BLOB", pa.binary())
        return TEXT

    def arrow_type(self, kind: object) -> pa.DataType | None:
        from sqlalchemy import types as st

        if isinstance(kind, st.Numeric) and not isinstance(kind, st.Float):
            if kind.precision is None:
                return None
            return pa.decimal128(kind.precision, kind.scale or 0)
        arrow_types: tuple[tuple[Any, pa.DataType], ...] = (
            (st.Boolean, pa.bool_()),
            (st.Integer, pa.int64()),
            (st.Float, pa.float64()),
            (st.Date, pa.date32()),
            (st.DateTime, pa.timestamp("us")),
            (st.Time, pa.time64("us")),
            (st.LargeBinary, pa.binary()),
            ((st.String, st.JSON), pa.string()),
        )
        return first_type(kind, arrow_types)

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None:
        cursor = connection.connection.cursor()
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND name = "
            f"{text_literal(table.name)} COLLATE NOCASE"
        )
        row = cursor.fetchone()
        if row is None:
            return None
        return ExistingTable(read_mark(row[0]), is_empty=False)

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        # WITHOUT ROWID stores the rows in the tree of their key; a single INTEGER key does so
        # anyway.
        is_rowid = len(key) == 1 and columns[key[0]] == "INTEGER"
        ending = " WITHOUT ROWID" if key and not is_rowid else ""
        listed = column_list(self, columns, key)
        return [f"CREATE TABLE {qualify(self, table)} (/* {mark} */ {listed}){ending}"]

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        """Returns no statements: a declared type only affects storage, which is the same here."""
        return [] if kind.startswith("DECIMAL") else None

    def write_as_text(
        self, table: TableId, column: str, *, stored: pa.DataType, comes: pa.DataType
    ) -> list[str] | None:
        """Converts decimals to text. A column keeps its declared type, so another column takes its
        name."""
        if not pa.types.is_decimal(stored) or not pa.types.is_decimal(comes):
            return None
        name, old, new = qualify(self, table), self.quote(column), self.quote(column + WIDENED)
        zeros = "0" * (comes.scale - stored.scale)
        point = "." if zeros and not stored.scale else ""
        text = f"printf('%.{stored.scale}f', {old}) || '{point}{zeros}'"
        return [
            f"ALTER TABLE {name} ADD COLUMN {new} TEXT",
            f"UPDATE {name} SET {new} = {text} WHERE {old} IS NOT NULL",
            f"ALTER TABLE {name} DROP COLUMN {old}",
            f"ALTER TABLE {name} RENAME COLUMN {new} TO {old}",
        ]

    def rekey(
        self,
        connection: "sa.Connection",
        table: TableId,
        key: Mapping[str, str],
        *,
        mark: OwnershipMark,
    ) -> list[str]:
        """Copies the rows into a new table, because they are stored in the tree of their key."""
        cursor = connection.connection.cursor()
        cursor.execute(f"PRAGMA table_info({self.quote(table.name)})")
        columns = {name: key.get(name, kind) for _, name, kind, *_ in cursor.fetchall()}
        copy = table._replace(name=f"{table.name}{REKEYED}")
        names = name_list(self, columns)
        old, new = qualify(self, table), qualify(self, copy)
        return [
            *self.create(copy, columns, key=list(key), mark=mark),
            f"INSERT INTO {new} ({names}) SELECT {names} FROM {old}",
            f"DROP TABLE {old}",
            *self.rename([(copy, table)]),
        ]

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None:
        self._put(connection, table, rows)

    def upsert(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, by: UpsertKey
    ) -> None:
        self._put(connection, table, rows, ending=on_conflict(self, rows.schema.names, by.columns))

    def update(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        others = which.find_unmatched(rows.schema.names)
        self._many(
            connection,
            f"UPDATE {qualify(self, table)} SET {fill_in(self, others, '{} = ?')} WHERE "
            + conditions(self, which, column="{}", given="?"),
            rows.select([*others, *(each.column for each in which.match)]),
        )

    def delete(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        self._many(
            connection,
            f"DELETE FROM {qualify(self, table)} WHERE "
            + conditions(self, which, column="{}", given="?"),
            rows.select([each.column for each in which.match]),
        )

    def stage(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        is_indexed: bool = False,
    ) -> str:
        stage, listed = "temp.headwater_keys", name_list(self, rows.schema.names)
        run(connection, f"DROP TABLE IF EXISTS {stage}")
        made = f"SELECT {listed} FROM {qualify(self, table)} LIMIT 0"
        run(connection, f"CREATE TEMPORARY TABLE headwater_keys AS {made}")
        self._put(connection, TableId("temp", "headwater_keys"), rows)
        if is_indexed:
            run(connection, f"CREATE INDEX temp.headwater_keys_of ON headwater_keys ({listed})")
        return stage

    def find_rejected(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Returns rows with NaN, which SQLite would store as null."""
        found: dict[int, str] = {}
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if pa.types.is_floating(column.type):
                rows_found = pc.indices_nonzero(pc.is_nan(column)).to_pylist()
                found |= dict.fromkeys(
                    rows_found, f"column {name} has a NaN, which SQLite does not store"
                )
        return found

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        import sqlite3

        if isinstance(error, OverflowError):
            return DriverProblem.VALUE, "a number is out of range"
        if not isinstance(error, sqlite3.Error):
            return DriverProblem.REFUSED, "the driver does not take the statement"
        code = getattr(error, "sqlite_errorname", "") or "SQLITE_ERROR"
        family = "_".join(code.split("_")[:2])
        if code in KEYS:
            return DriverProblem.TAKEN, "a row with this key already exists"
        for codes, problem in (
            (AWAY, DriverProblem.AWAY),
            (AGAIN, DriverProblem.AGAIN),
            (VALUE, DriverProblem.VALUE),
        ):
            if family in codes:
                return problem, f"SQLite says {code}"
        if "no such table" in str(error) or "no column named" in str(error):
            return DriverProblem.GONE, "a table or column does not exist"
        return DriverProblem.REFUSED, f"SQLite says {code}"

    def _put(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, *, ending: str = ""
    ) -> None:
        """Inserts as many rows per statement as possible."""
        names = name_list(self, rows.schema.names)
        marks = f"({', '.join('?' for _ in rows.schema.names)})"
        opening = f"INSERT INTO {qualify(self, table)} ({names}) VALUES "
        driver: Any = connection.connection.driver_connection
        at_once = max(min(ROWS_AT_ONCE, variables_max(driver) // rows.num_columns), 1)
        many = opening + ", ".join([marks] * at_once) + ending
        whole, block = rows.num_rows - rows.num_rows % at_once, BLOCK_ROWS // at_once * at_once
        for start in range(0, whole, block):
            values = sqlite_values(rows.slice(start, min(block, whole - start)))
            width = at_once * rows.num_columns
            starts = range(0, len(values), width)
            driver.executemany(many, (values[at : at + width] for at in starts))
        driver.executemany(opening + marks + ending, sqlite_rows(rows.slice(whole)))

    def _many(self, connection: "sa.Connection", statement: str, rows: pa.RecordBatch) -> None:
        driver: Any = connection.connection.driver_connection
        driver.executemany(statement, sqlite_rows(rows))


def variables_max(driver: Any) -> int:
    """Returns the number of values that one statement takes."""
    import sqlite3

    found: int = driver.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    return found
