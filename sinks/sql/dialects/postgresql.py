"""PostgreSQL: COPY into a temporary table, and from there one statement."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.tcp_keepalive import (
    COUNT,
    IDLE_S,
    INTERVAL_S,
    UNACKNOWLEDGED_MS_MAX,
)
from headwater.core_log.model.table_schema import Column, TableId
from headwater.core_log.rows.schema_text import decimal_type
from headwater.sinks.sql.database_values import copy_text
from headwater.sinks.sql.dialects.dialect import (
    ColumnFit,
    DriverProblem,
    ExistingTable,
    OwnershipMark,
    StagedDialect,
    UpsertKey,
    column_list,
    existing_table,
    first_type,
    name_list,
    on_conflict,
    qualify,
    run,
    text_literal,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

US, TZ = pa.timestamp("us"), pa.timestamp("us", "UTC")
FITS = {
    pa.bool_(): ColumnFit("BOOLEAN", pa.bool_()),
    pa.int8(): ColumnFit("SMALLINT", pa.int16()),
    pa.int16(): ColumnFit("SMALLINT", pa.int16()),
    pa.int32(): ColumnFit("INTEGER", pa.int32()),
    pa.int64(): ColumnFit("BIGINT", pa.int64()),
    pa.uint8(): ColumnFit("SMALLINT", pa.int16()),
    pa.uint16(): ColumnFit("INTEGER", pa.int32()),
    pa.uint32(): ColumnFit("BIGINT", pa.int64()),
    pa.uint64(): ColumnFit("NUMERIC(20,0)", pa.decimal128(20, 0)),
    pa.float32(): ColumnFit("REAL", pa.float32()),
    pa.float64(): ColumnFit("DOUBLE PRECISION", pa.float64()),
    pa.date32(): ColumnFit("DATE", pa.date32()),
    pa.binary(): ColumnFit("BYTEA", pa.binary()),
}
SEMANTICS = {"io.debezium.data.Json": "JSON", "io.debezium.data.Uuid": "UUID"}
TEXT = ColumnFit("TEXT", pa.string())
STAGES_MAX = 32
NEW_ROWS_MIN = 1_000
"""Fewer rows are not worth a savepoint."""

INTERRUPT_S_MAX = 5.0

AWAY_CLASSES = ("08", "53", "57", "58")
AGAIN = ("40001", "40P01", "55P03", "25006")
VALUE_CLASSES = ("22", "23", "54")
GONE = ("42P01", "42703", "3F000")


NOTICE_SILENCE = (
    "SELECT set_config(name, given.value, false) FROM pg_settings JOIN (VALUES"
    f" ('tcp_keepalives_idle', '{IDLE_S}'), ('tcp_keepalives_interval', '{INTERVAL_S}'),"
    f" ('tcp_keepalives_count', '{COUNT}'), ('tcp_user_timeout', '{UNACKNOWLEDGED_MS_MAX}'))"
    " given(name, value) USING (name)"
)
"""By which the server ends our session a minute after the network has gone silent. By default it
takes two hours, and our next session waits so long for the locks of this one."""


class PostgresqlDialect(StagedDialect):
    """PostgreSQL. Temporary tables last as long as the connection, one per list of column types."""

    name = "postgresql"
    name_bytes_max = 63
    is_case_sensitive = True
    has_transactional_ddl = True
    keeps_marks = True
    sets = "{0} = s.{0}"
    update_sql = "UPDATE {t} AS t SET {sets} FROM {s} AS s WHERE {on}"
    delete_sql = "DELETE FROM {t} AS t USING {s} AS s WHERE {on}"
    join_sql = "JOIN"

    def __init__(self) -> None:
        self._stages: dict[tuple[str, ...], str] = {}
        self._used: set[str] = set()
        self._kinds: dict[TableId, dict[str, str]] = {}
        self._had_some: set[TableId] = set()
        """Tables in which "new" rows existed already: plain inserts are not tried there again."""

    def prepare(self, connection: "sa.Connection") -> None:
        for statement in (
            "SET TIME ZONE 'UTC'",
            "SET DateStyle TO 'ISO, YMD'",
            "SET client_encoding TO 'UTF8'",
            "SET standard_conforming_strings TO on",
            "SET extra_float_digits TO 1",
            NOTICE_SILENCE,
        ):
            run(connection, statement)

    def begin(self, connection: "sa.Connection") -> None:
        self._used.clear()

    def forget(self) -> None:
        self._stages.clear()
        self._kinds.clear()

    def interrupt(self, driver: Any, engine: "sa.Engine") -> None:
        driver.cancel_safe(timeout=INTERRUPT_S_MAX)

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit:
        kind = column.type
        if column.semantic in SEMANTICS and pa.types.is_string(kind):
            return ColumnFit(SEMANTICS[column.semantic], pa.string())
        if kind in FITS:
            return FITS[kind]
        if pa.types.is_decimal(kind):
            return ColumnFit(f"NUMERIC({kind.precision},{kind.scale})", kind)
        if pa.types.is_timestamp(kind) and kind.unit != "ns":
            return ColumnFit("TIMESTAMP", US) if kind.tz is None else ColumnFit("TIMESTAMPTZ", TZ)
        if pa.types.is_time(kind) and kind.unit != "ns":
            return ColumnFit("TIME", pa.time64("us"))
        if pa.types.is_nested(kind):
            return ColumnFit("JSON", pa.string())
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return FITS[pa.binary()]
        if pa.types.is_duration(kind):
            return FITS[pa.int64()]
        return TEXT

    def arrow_type(self, kind: object) -> pa.DataType | None:
        from sqlalchemy import types as st
        from sqlalchemy.dialects import postgresql as pg

        if isinstance(kind, st.Numeric) and not isinstance(kind, st.Float):
            if kind.precision is None:
                return None
            digits, scale = kind.precision, kind.scale or 0
            return decimal_type(digits, scale)
        if isinstance(kind, st.DateTime):
            return TZ if kind.timezone else US
        arrow_types: tuple[tuple[Any, pa.DataType], ...] = (
            (st.Boolean, pa.bool_()),
            (st.SmallInteger, pa.int16()),
            (st.BigInteger, pa.int64()),
            (st.Integer, pa.int32()),
            (st.REAL, pa.float32()),
            (st.Float, pa.float64()),
            (st.Date, pa.date32()),
            (st.Time, pa.time64("us")),
            ((pg.BYTEA, st.LargeBinary), pa.binary()),
            ((st.String, st.JSON, st.Uuid), pa.string()),
        )
        return first_type(kind, arrow_types)

    def find_strict_texts(
        self, connection: "sa.Connection", table: TableId, kinds: Mapping[str, object]
    ) -> dict[str, str]:
        from sqlalchemy import types as st

        strict = {"JSON": st.JSON, "UUID": st.Uuid}
        return {
            column: name
            for column, kind in kinds.items()
            for name, each in strict.items()
            if isinstance(kind, each)
        }

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None:
        name = text_literal(qualify(self, table))
        cursor = connection.connection.cursor()
        cursor.execute(f"SELECT to_regclass({name}), obj_description(to_regclass({name}))")
        there, comment = cursor.fetchone() or (None, None)
        if there is None:
            return None
        return existing_table(self, connection, table, comment)

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        name = qualify(self, table)
        schema = [f"CREATE SCHEMA IF NOT EXISTS {self.quote(table.namespace)}"]
        return [
            *(schema if table.namespace else []),
            f"CREATE TABLE {name} ({column_list(self, columns, key)})",
            *self.claim(table, mark),
        ]

    def claim(self, table: TableId, mark: OwnershipMark) -> list[str]:
        return [f"COMMENT ON TABLE {qualify(self, table)} IS {text_literal(str(mark))}"]

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        return [f"ALTER TABLE {qualify(self, table)} ALTER COLUMN {self.quote(column)} TYPE {kind}"]

    def loosen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        return [
            f"ALTER TABLE {qualify(self, table)} ALTER COLUMN {self.quote(column)} DROP NOT NULL"
        ]

    def rekey(
        self,
        connection: "sa.Connection",
        table: TableId,
        key: Mapping[str, str],
        *,
        mark: OwnershipMark,
    ) -> list[str]:
        name = qualify(self, table)
        cursor = connection.connection.cursor()
        cursor.execute(
            "SELECT conname FROM pg_catalog.pg_constraint WHERE contype = 'p' "
            f"AND conrelid = to_regclass({text_literal(name)})"
        )
        constraints, columns = cursor.fetchall(), name_list(self, key)
        return [
            *(f"ALTER TABLE {name} DROP CONSTRAINT {self.quote(row[0])}" for row in constraints),
            f"ALTER TABLE {name} ADD PRIMARY KEY ({columns})",
        ]

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None:
        self._copy(connection, qualify(self, table), rows)

    def upsert(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, by: UpsertKey
    ) -> None:
        is_worth_it = np.count_nonzero(by.is_new) >= NEW_ROWS_MIN and table not in self._had_some
        if is_worth_it and self._is_inserted(connection, table, rows.filter(pa.array(by.is_new))):
            rows = rows.filter(pa.array(~by.is_new))
        if not rows.num_rows:
            return
        stage = self.stage(connection, table, rows)
        names = name_list(self, rows.schema.names)
        run(
            connection,
            f"INSERT INTO {qualify(self, table)} ({names}) SELECT {names} FROM {stage}"
            + on_conflict(self, rows.schema.names, by.columns),
        )

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return DriverProblem.REFUSED, "the driver does not take the statement"
        state = error.sqlstate
        if state is None:
            is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            return (
                (DriverProblem.AWAY, "the connection broke") if is_away else _refusal_of(error, "")
            )
        if state in AGAIN:
            return DriverProblem.AGAIN, f"{_words(error)} (SQLSTATE {state})"
        if state.startswith(AWAY_CLASSES):
            return DriverProblem.AWAY, f"{_words(error)} (SQLSTATE {state})"
        if state == "23505":
            return DriverProblem.TAKEN, "a row with this key already exists"
        if state.startswith(VALUE_CLASSES):
            return DriverProblem.VALUE, f"{_words(error)}{_column(error)} (SQLSTATE {state})"
        if state in GONE:
            return DriverProblem.GONE, f"{_words(error)} (SQLSTATE {state})"
        return _refusal_of(error, state)

    def stage(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        is_indexed: bool = False,
    ) -> str:
        kinds = self._kinds_of(connection, table)
        columns = {name: kinds[name] for name in rows.schema.names}
        layout = tuple(f"{self.quote(name)} {kind}" for name, kind in columns.items())
        stage = self._stages.get(layout)
        if stage is None:
            if len(self._stages) >= STAGES_MAX:  # every commit empties all of them
                self._stages.clear()
            stage = f"pg_temp.headwater_{len(self._stages)}"
            run(connection, f"DROP TABLE IF EXISTS {stage}")
            run(
                connection,
                f"CREATE TEMPORARY TABLE {stage.removeprefix('pg_temp.')} ({', '.join(layout)}) "
                "ON COMMIT DELETE ROWS",
            )
            self._stages[layout] = stage
        elif stage in self._used:
            run(connection, f"TRUNCATE {stage}")
        self._used.add(stage)
        self._copy(connection, stage, rows)
        return stage

    def _kinds_of(self, connection: "sa.Connection", table: TableId) -> dict[str, str]:
        if table not in self._kinds:
            cursor = connection.connection.cursor()
            cursor.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid "
                f"= {text_literal(qualify(self, table))}::regclass AND attnum > 0 "
                "AND NOT attisdropped"
            )
            self._kinds[table] = dict(cursor.fetchall())
        return self._kinds[table]

    def _is_inserted(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch
    ) -> bool:
        """Inserts rows by COPY straight into the table, two thirds of the cost by a temporary
        table.

        Returns false, without effect, if a row exists already or the table takes no COPY.
        """
        import psycopg

        nested = connection.begin_nested()
        try:
            self._copy(connection, qualify(self, table), rows)
        except psycopg.Error as error:
            if error.sqlstate is None:  # the connection broke
                raise
            nested.rollback()
            self._had_some.add(table)
            return False
        nested.commit()
        return True

    def _copy(self, connection: "sa.Connection", table: str, rows: pa.RecordBatch) -> None:
        names = name_list(self, rows.schema.names)
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            copy.write(copy_text(rows))


def _words(error: Any) -> str:
    """Returns `NumericValueOutOfRange` as words: the message itself may contain a value."""
    name = type(error).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _column(error: Any) -> str:
    name = getattr(error.diag, "column_name", None)
    return f" in column {name}" if name else ""


def _refusal_of(error: Any, state: str) -> tuple[DriverProblem, str]:
    return DriverProblem.REFUSED, f"{_words(error)} (SQLSTATE {state})" if state else _words(error)
