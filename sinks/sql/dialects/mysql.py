"""MySQL and MariaDB: long INSERT statements built by column, and joins with a temporary table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.model.table_schema import Column, TableId
from headwater.core_log.rows.schema_text import decimal_type
from headwater.sinks.sql.database_values import statements, value_lists
from headwater.sinks.sql.dialects.dialect import (
    ColumnFit,
    DriverProblem,
    ExistingTable,
    OwnershipMark,
    StagedDialect,
    UpsertKey,
    column_list,
    existing_table,
    fill_in,
    first_type,
    name_list,
    qualify,
    run,
    text_literal,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

US = pa.timestamp("us")
FITS = {
    pa.bool_(): ColumnFit("BOOLEAN", pa.bool_()),
    pa.int8(): ColumnFit("TINYINT", pa.int8()),
    pa.int16(): ColumnFit("SMALLINT", pa.int16()),
    pa.int32(): ColumnFit("INT", pa.int32()),
    pa.int64(): ColumnFit("BIGINT", pa.int64()),
    pa.uint8(): ColumnFit("TINYINT UNSIGNED", pa.uint8()),
    pa.uint16(): ColumnFit("SMALLINT UNSIGNED", pa.uint16()),
    pa.uint32(): ColumnFit("INT UNSIGNED", pa.uint32()),
    pa.uint64(): ColumnFit("BIGINT UNSIGNED", pa.uint64()),
    pa.float32(): ColumnFit(
        "DOUBLE", pa.float64()
    ),  # FLOAT shows six of a value's seven or eight digits
    pa.float64(): ColumnFit("DOUBLE", pa.float64()),
    pa.date32(): ColumnFit("DATE", pa.date32()),
}
DIGITS_MAX, SCALE_MAX = 65, 30
KEY_LENGTH = 255

AWAY = {1040, 1053, 1077, 1080, 1158, 1159, 1160, 1161, 1203, 1226, 2002, 2003, 2006, 2013, 2055}
AWAY |= {1021, 1041, 1114, 3100}
AWAY |= {*range(1, 100)}
"""Errors below 100 are of the server's operating system, such as a full disk."""
AGAIN = {1020, 1205, 1213, 1412}
GONE = {1049, 1054, 1146}
VALUES = {
    1048: "a key is null",
    1264: "a number is out of range",
    1265: "a value would be cut",
    1292: "a date, a time or a number is none to this database",
    1366: "a value is none of its column's type",
    1406: "a text is too long for its column",
    1067: "a value is none of its column's type",
    1118: "a row is too long",
    1153: "a row is longer than max_allowed_packet",
    1411: "a date or a time is none to this database",
    1416: "a value is none of its column's type",
    3140: "a text is no JSON",
    3156: "a value is none of its column's type",
    4025: "a value breaks a constraint of its column",
}
PREFIX_LENGTH = 64
"""Letters of a text in the index of a temporary table."""
STATEMENT_BYTES_MAX = 4 << 20
IDLE_S_MAX = 120
"""The server ends a session that writes after so long without a statement, with its locks: it does
not notice for hours that a network has gone silent."""


class MysqlDialect(StagedDialect):
    """MySQL and MariaDB. Their DDL commits an open transaction, so it never runs inside one."""

    name = "mysql"
    name_bytes_max = 64
    is_case_sensitive = False
    has_transactional_ddl = False
    keeps_marks = True
    sets = "t.{0} = s.{0}"
    update_sql = "UPDATE {t} AS t JOIN {s} AS s ON {on} SET {sets}"
    delete_sql = "DELETE t FROM {t} AS t JOIN {s} AS s ON {on}"
    join_sql = "STRAIGHT_JOIN"

    def __init__(self) -> None:
        self._collation = "utf8mb4_bin"
        self._statement_bytes = STATEMENT_BYTES_MAX
        self._is_limited = False
        self.idle_ms_max = IDLE_S_MAX * 1_000 // 2

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def prepare(self, connection: "sa.Connection") -> None:
        run(connection, "SET NAMES utf8mb4")
        run(connection, "SET SESSION time_zone = '+00:00'")
        run(
            connection,
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION"
            ",NO_ZERO_IN_DATE,NO_ZERO_DATE'",
        )
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor = connection.connection.cursor()
        cursor.execute(
            "SELECT @@max_allowed_packet, collation_name FROM (SELECT 1) AS one LEFT JOIN "
            "information_schema.collations ON collation_name IN ('utf8mb4_nopad_bin', "
            "'utf8mb4_0900_bin')"
        )
        # A key with trailing spaces is another key, but padding collations do not distinguish it.
        packet_bytes, collation = cursor.fetchone() or (1 << 20, None)
        self._collation = collation or self._collation
        self._statement_bytes = min(packet_bytes // 2, STATEMENT_BYTES_MAX)

    def begin(self, connection: "sa.Connection") -> None:
        if not self._is_limited:
            run(connection, f"SET SESSION wait_timeout = {IDLE_S_MAX}")
            self._is_limited = True

    def forget(self) -> None:
        self._is_limited = False

    def interrupt(self, driver: Any, engine: "sa.Engine") -> None:
        with engine.connect() as connection:
            run(connection, f"KILL QUERY {driver.thread_id()}")

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit:
        kind = column.type
        if column.semantic == "io.debezium.data.Json" and not is_key:
            return ColumnFit("JSON", pa.string())
        if kind in FITS:
            return FITS[kind]
        if (
            pa.types.is_decimal(kind)
            and kind.precision <= DIGITS_MAX
            and (0 <= kind.scale <= SCALE_MAX)
        ):
            return ColumnFit(f"DECIMAL({kind.precision},{kind.scale})", kind)
        if pa.types.is_timestamp(kind) and kind.unit != "ns":
            return ColumnFit("DATETIME(6)", US)
        if pa.types.is_time(kind) and kind.unit != "ns":
            return ColumnFit("TIME(6)", pa.time64("us"))
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return ColumnFit(f"VARBINARY({KEY_LENGTH})" if is_key else "LONGBLOB", pa.binary())
        if pa.types.is_duration(kind):
            return FITS[pa.int64()]
        return ColumnFit(f"VARCHAR({KEY_LENGTH})" if is_key else "LONGTEXT", pa.string())

    def arrow_type(self, kind: object) -> pa.DataType | None:
        from sqlalchemy import types as st
        from sqlalchemy.dialects import mysql as my

        if isinstance(kind, my.TINYINT) and kind.display_width == 1:
            return pa.bool_()
        integers: tuple[tuple[Any, pa.DataType, pa.DataType], ...] = (
            (my.TINYINT, pa.int8(), pa.uint8()),
            (my.SMALLINT, pa.int16(), pa.uint16()),
            (my.BIGINT, pa.int64(), pa.uint64()),
            (st.Integer, pa.int32(), pa.uint32()),
        )
        for types, signed, unsigned in integers:
            if isinstance(kind, types):
                return unsigned if getattr(kind, "unsigned", False) else signed
        if isinstance(kind, st.Numeric) and not isinstance(kind, st.Float | my.DOUBLE | my.FLOAT):
            digits, scale = kind.precision or 10, kind.scale or 0
            return decimal_type(digits, scale)
        arrow_types: tuple[tuple[Any, pa.DataType], ...] = (
            (my.FLOAT, pa.float32()),
            ((my.DOUBLE, st.Float), pa.float64()),
            (st.Date, pa.date32()),
            (st.DateTime, US),
            (st.Time, pa.time64("us")),
            ((my.LONGBLOB, my.MEDIUMBLOB, my.TINYBLOB, st.LargeBinary), pa.binary()),
            ((my.VARBINARY, my.BINARY), pa.binary()),
            ((st.String, st.JSON), pa.string()),
        )
        return first_type(kind, arrow_types)

    def find_strict_texts(
        self, connection: "sa.Connection", table: TableId, kinds: Mapping[str, object]
    ) -> dict[str, str]:
        """MariaDB's JSON is a text with a constraint, which has the column's name."""
        from sqlalchemy import types as st

        found = {column: "JSON" for column, kind in kinds.items() if isinstance(kind, st.JSON)}
        if getattr(connection.dialect, "is_mariadb", False):
            schema = text_literal(table.namespace) if table.namespace else "DATABASE()"
            cursor = connection.connection.cursor()
            cursor.execute(
                "SELECT constraint_name FROM information_schema.check_constraints WHERE"
                f" constraint_schema = {schema} AND table_name = {text_literal(table.name)}"
                " AND level = 'Column' AND check_clause LIKE 'json_valid(%'"
            )
            found |= {column: "JSON" for (column,) in cursor.fetchall()}
        return found

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None:
        schema = text_literal(table.namespace) if table.namespace else "DATABASE()"
        cursor = connection.connection.cursor()
        cursor.execute(
            f"SELECT table_comment FROM information_schema.tables WHERE table_schema = {schema} "
            f"AND table_name = {text_literal(table.name)}"
        )
        row = cursor.fetchone()
        if row is None:
            return None
        return existing_table(self, connection, table, row[0])

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        schema = [f"CREATE DATABASE IF NOT EXISTS {self.quote(table.namespace)}"]
        return [
            *(schema if table.namespace else []),
            f"CREATE TABLE {qualify(self, table)} ({column_list(self, columns, key)}) "
            f"DEFAULT CHARACTER SET utf8mb4 COLLATE {self._collation} "
            f"COMMENT = {text_literal(str(mark))}",
        ]

    def claim(self, table: TableId, mark: OwnershipMark) -> list[str] | None:
        return [f"ALTER TABLE {qualify(self, table)} COMMENT = {text_literal(str(mark))}"]

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        return [f"ALTER TABLE {qualify(self, table)} MODIFY COLUMN {self.quote(column)} {kind}"]

    def loosen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        return self.widen(table, column, f"{kind} NULL")

    def rekey(
        self,
        connection: "sa.Connection",
        table: TableId,
        key: Mapping[str, str],
        *,
        mark: OwnershipMark,
    ) -> list[str]:
        """Returns one statement, which is atomic."""
        columns = [
            f"MODIFY COLUMN {self.quote(name)} {kind} NOT NULL" for name, kind in key.items()
        ]
        names = name_list(self, key)
        steps = ["DROP PRIMARY KEY", *columns, f"ADD PRIMARY KEY ({names})"]
        return [f"ALTER TABLE {qualify(self, table)} {', '.join(steps)}"]

    def rename(self, pairs: Sequence[tuple[TableId, TableId]]) -> list[str]:
        moves = (f"{qualify(self, old)} TO {qualify(self, new)}" for old, new in pairs)
        return [f"RENAME TABLE {', '.join(moves)}"]

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None:
        self._insert(connection, qualify(self, table), rows)

    def upsert(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, by: UpsertKey
    ) -> None:
        names = [name for name in rows.schema.names if name not in by.columns] or by.columns
        sets = fill_in(self, names, "{0} = VALUES({0})")
        self._insert(
            connection, qualify(self, table), rows, ending=f" ON DUPLICATE KEY UPDATE {sets}"
        )

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        import pymysql

        if not isinstance(error, pymysql.Error):
            return DriverProblem.REFUSED, "the driver does not take the statement"
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        reason = f"error {code}" if code else type(error).__name__
        if code in AWAY or (code == 0 and isinstance(error, pymysql.err.InterfaceError)):
            return DriverProblem.AWAY, f"the server is away, busy or full ({reason})"
        if code in AGAIN:
            return DriverProblem.AGAIN, f"another transaction was in the way ({reason})"
        if code == 1062:
            return DriverProblem.TAKEN, "a row with this key already exists"
        if code in VALUES or isinstance(error, pymysql.err.DataError):
            return DriverProblem.VALUE, f"{VALUES.get(code, 'a value does not fit')} ({reason})"
        if code in GONE:
            return DriverProblem.GONE, f"a table or column does not exist ({reason})"
        return DriverProblem.REFUSED, f"the server refused it ({reason})"

    def stage(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        is_indexed: bool = False,
    ) -> str:
        """Creates the index with the table: created later it would commit. Without an index on one
        of the sides MariaDB would compare each key with each row."""
        stage, index = self.quote("headwater_stage"), ""
        if is_indexed:
            columns = ", ".join(
                self.quote(name) + (f"({PREFIX_LENGTH})" if _has_length(kind) else "")
                for name, kind in zip(rows.schema.names, rows.schema.types, strict=True)
            )
            index = f"(INDEX ({columns}))"
        names = name_list(self, rows.schema.names)
        run(connection, f"DROP TEMPORARY TABLE IF EXISTS {stage}")
        run(
            connection,
            f"CREATE TEMPORARY TABLE {stage} {index} AS"
            f" SELECT {names} FROM {qualify(self, table)} LIMIT 0",
        )
        self._insert(connection, stage, rows)
        return stage

    def _insert(
        self, connection: "sa.Connection", table: str, rows: pa.RecordBatch, *, ending: str = ""
    ) -> None:
        names = name_list(self, rows.schema.names)
        head, tail = f"INSERT INTO {table} ({names}) VALUES ".encode(), ending.encode()
        driver: Any = connection.connection.driver_connection
        for values in statements(value_lists(rows), bytes_max=self._statement_bytes):
            driver.query(head + values + tail)


def _has_length(kind: pa.DataType) -> bool:
    """Returns whether values are stored as text or bytes, whose index needs a length."""
    column = MysqlDialect().fit(Column("", kind), is_key=False)
    return bool(pa.types.is_string(column.holds) or pa.types.is_binary(column.holds))
