"""One database as a source: its present tables, and pages of their rows as columns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql as my

from headwater.connectors.sql.columns import SelectedColumn, batch_of, columns_of, reading_of
from headwater.connectors.sql.settings import SqlSourceSettings, check_lag
from headwater.core_log.foundation.database_errors import (
    connection_error,
    database_full,
    is_disk_full,
    place_of,
)
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import HeadwaterError, SourceRejected, SourceUnavailable
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.rows.text.datetime import times_to_iso_text

BLOCK_BYTES_MAX = (1 << 31) - 1
WITHOUT_SCHEMAS = {"sqlite", "mysql", "mariadb"}
SESSIONS = {
    "postgresql": ("SET TIME ZONE 'UTC'", "SET DateStyle TO 'ISO, YMD'", "SET bytea_output TO hex"),
    "mysql": ("SET SESSION time_zone = '+00:00'",),
}


ESTIMATES = {
    "postgresql": """
SELECT CASE WHEN c.reltuples < 0 THEN pg_relation_size(c.oid) / 100 ELSE c.reltuples::int8 END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = coalesce(:namespace, current_schema()) AND c.relname = :name
""",
    "mysql": """
SELECT table_rows FROM information_schema.tables
WHERE table_schema = coalesce(:namespace, database()) AND table_name = :name
""",
}
"""Queries for estimates that a database keeps; other databases are asked to count."""


REASONS: dict[str | int | None, str] = {
    "42501": "our user has no right to read the table",
    1142: "our user has no right to read the table",
    1143: "our user has no right to read all of its columns",
    "42P01": "the table does not exist any more",
    "42703": "a column does not exist any more",
    1146: "the table does not exist any more",
    1054: "a column does not exist any more",
}
"""Reasons by PostgreSQL's and MySQL's error codes."""


@dataclass(frozen=True, slots=True)
class SqlTable:
    schema: TableSchema
    there: Any
    """SQLAlchemy's own table."""
    readings: tuple[SelectedColumn, ...]
    cursor: tuple[str, ...]
    order: tuple[str, ...]
    """The columns by which its rows are ordered: the cursor, then the key."""

    @property
    def id(self) -> TableId:
        return self.schema.table


class Database:
    """The source's database. All calls run on one thread, and only read."""

    def __init__(self, settings: SqlSourceSettings, *, directory: Path) -> None:
        self._settings = settings
        self.engine = engine_at(
            settings.url.get_secret_value(),
            directory=directory,
            timeout_ms=settings.connect_timeout_ms,
        )
        self._connection: sa.Connection | None = None
        self.refused: dict[TableId, SourceRejected] = {}
        """Chosen tables that cannot be read, as of the last look."""

    def tables(self) -> list[SqlTable]:
        """Returns the chosen tables by name, without the `refused` ones."""
        self.refused = {}
        found = list[SqlTable]()
        with self._translate():
            connection = self._open_connection()
            inspector = sa.inspect(connection)
            try:
                for table, where in self._names(inspector):
                    try:
                        with self._translate(str(table)):
                            found.append(self._table(inspector, table, where))
                    except SourceRejected as error:
                        connection.rollback()
                        self.refused[table] = error
            finally:
                connection.rollback()
        return found

    def page(
        self,
        table: SqlTable,
        *,
        after: Sequence[str] | None,
        at_least: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> tuple[pa.RecordBatch, list[str] | None]:
        """Returns the next rows in the order of `table.order` and where they end; `after` is the
        end of the last page, `at_least` a lower bound of the order's first column."""
        names = set(table.schema.names if columns is None else columns)
        readings = tuple(each for each in table.readings if each.column.name in names)
        schema = TableSchema(table.id, tuple(each.column for each in readings), ())
        wanted = replace(table, readings=readings, schema=schema)
        statement = self._text(self._question(wanted, after=after, at_least=at_least))
        with self._translate(str(table.id)):
            connection = self._open_connection()
            try:
                rows, end = self._read(connection, wanted, statement)
            finally:
                connection.connection.rollback()  # no transaction stays open between queries
        return rows, end

    def row_estimate(self, table: SqlTable) -> int:
        kind = self.engine.dialect.name
        known = ESTIMATES.get("mysql" if kind == "mariadb" else kind)
        with self._translate(str(table.id)):
            connection = self._open_connection()
            try:
                if known is None:
                    question = sa.select(sa.func.count()).select_from(table.there)
                    found = connection.execute(question).scalar()
                else:
                    index = {"namespace": table.there.schema, "name": table.id.name}
                    found = connection.execute(sa.text(known), index).scalar()
            finally:
                connection.rollback()
        return int(found or 0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.engine.dispose()

    def _names(self, inspector: Any) -> list[tuple[TableId, str | None]]:
        kind = self.engine.dialect.name
        has_schemas = kind not in WITHOUT_SCHEMAS
        default = inspector.default_schema_name if has_schemas else ""
        wanted, found = Patterns(self._settings.tables), list[tuple[TableId, str | None]]()
        for namespace in self._settings.namespaces or (None,):
            shown = namespace or default or ""
            for name in sorted(inspector.get_table_names(schema=namespace)):
                table = TableId(shown, name)
                if name.startswith("_headwater_"):
                    continue
                if wanted.matches_any(names_of(table)):
                    found.append((table, namespace))
        return found

    def _table(self, inspector: Any, table: TableId, where: str | None) -> SqlTable:
        names = names_of(table)
        found = inspector.get_columns(table.name, schema=where)
        found = [each | {"name": self._unquote(each["name"])} for each in found]
        there = sa.Table(
            sa.quoted_name(table.name, True),
            sa.MetaData(),
            *(sa.Column(sa.quoted_name(each["name"], True), each["type"]) for each in found),
            schema=where,
        )
        key = self._settings.key_of(*names) or tuple(
            self._unquote(name)
            for name in inspector.get_pk_constraint(table.name, schema=where)["constrained_columns"]
        )
        cursor = self._settings.cursor_of(*names)
        columns = {each["name"]: bool(each["nullable"]) for each in found}
        missing = {*key, *cursor} - columns.keys()
        if missing:
            raise SourceRejected(
                "a column that the pipeline file names does not exist",
                table=str(table),
                columns=tuple(sorted(missing)),
                hint="correct `cursor` or `keys` of the source",
            )
        if cursor and not key:
            raise SourceRejected(
                "rows with the same cursor cannot be distinguished without a key",
                table=str(table),
                hint="set `keys` to columns that identify its rows; the cursor if that is enough",
            )
        if holed := [name for name in cursor[1:] if columns[name] and name not in key]:
            raise SourceRejected(
                "a cursor goes past rows in which one of its further columns is null",
                table=str(table),
                columns=tuple(holed),
                hint="leave them out of `cursor`: the key tells rows apart that are of one time",
            )
        readings = tuple(
            reading_of(
                each["name"],
                each["type"],
                is_nullable=bool(each["nullable"]) and each["name"] not in key,
                dialect=self.engine.dialect.name,
            )
            for each in found
        )
        schema = TableSchema(table, tuple(each.column for each in readings), key)
        order = (*cursor, *(name for name in key if name not in cursor))
        if self.engine.dialect.name != "postgresql" and any(
            pa.types.is_binary(schema.column(name).type)
            or isinstance(there.columns[name].type, my.BIT)
            for name in order
        ):
            # Text has no common conversion to bytes: such a table is read in one part.
            order = cursor = ()
        if cursor:
            kind = schema.column(cursor[0]).type
            declared = str(there.columns[cursor[0]].type)
            check_lag(self._settings, cursor[0], kind, declared=declared, table=str(table))
        return SqlTable(schema, there, readings, cursor, order)

    def _unquote(self, name: str) -> str:
        """SQLAlchemy keeps MySQL's doubled quotes in the names of columns."""
        return name.replace("``", "`") if self.engine.dialect.name in ("mysql", "mariadb") else name

    def _question(
        self, table: SqlTable, *, after: Sequence[str] | None, at_least: str | None
    ) -> sa.Select[Any]:
        there = table.there
        ordered = [_compared(there.c[name], self.engine.dialect.name) for name in table.order]
        columns = [
            _shown(there.c[each.column.name], self.engine.dialect.name, as_text=each.as_text)
            for each in table.readings
        ]
        question = sa.select(*columns)
        if table.cursor:
            question = question.where(ordered[0].is_not(None))
        if after is not None:
            question = question.where(_beyond(ordered, after))
        elif at_least is not None:
            question = question.where(ordered[0] >= _literal(at_least))
        if ordered:
            question = question.order_by(*ordered).limit(self._settings.batch_rows)
        return question

    def _text(self, question: sa.Select[Any]) -> str:
        """Returns SQL text for a driver without parameters. Its dialect may double percent
        signs."""
        compiled = question.compile(
            dialect=self.engine.dialect, compile_kwargs={"literal_binds": True}
        )
        text = str(compiled)
        doubles = self.engine.dialect.identifier_preparer._double_percents
        return text.replace("%%", "%") if doubles else text

    def _read(
        self, connection: sa.Connection, table: SqlTable, statement: str
    ) -> tuple[pa.RecordBatch, list[str] | None]:
        if self.engine.dialect.driver == "psycopg":
            rows = _copy(connection, table, statement)
            return rows, _last_texts(rows, table)
        if self.engine.dialect.driver == "pymysql":
            columns = _fetched_as_text(connection, statement, len(table.readings))
        else:
            cursor = connection.connection.cursor()
            cursor.execute(statement)
            columns = columns_of(cursor.fetchall(), len(table.readings))
            cursor.close()
        rows = batch_of(table.schema, columns)
        if not rows.num_rows:
            return rows, None
        index_of = {each.column.name: index for index, each in enumerate(table.readings)}
        return rows, [str(columns[index_of[name]][-1]) for name in table.order]

    def _open_connection(self) -> sa.Connection:
        if self._connection is None:
            connection = self._connect()
            for statement in SESSIONS.get(self.engine.dialect.name, ()):
                connection.exec_driver_sql(statement)
            connection.commit()
            self._connection = connection
        return self._connection

    def _connect(self) -> sa.Connection:
        url = self.engine.url
        is_file = url.get_backend_name() == "sqlite" and url.database not in (None, ":memory:")
        if is_file and not Path(str(url.database)).exists():
            # SQLite would create an empty file without an error.
            raise SourceRejected(
                "the database file is missing",
                hint="create it, or correct the path in `url` of the source",
                path=url.database,
            )
        try:
            return self.engine.connect()
        except Exception as error:
            if not _is_of_driver(error):
                raise
            raise connection_error(
                error,
                self.engine,
                part="source",
                unavailable=SourceUnavailable,
                rejected=SourceRejected,
            ) from None

    @contextmanager
    def _translate(self, table: str = "") -> Iterator[None]:
        """Context manager: raises the driver's errors as ours, without values that a message may
        quote."""
        facts: dict[str, Any] = {"table": table} if table else {}
        try:
            yield
        except HeadwaterError:
            raise
        except Exception as error:
            cause = getattr(error, "orig", None) or error
            if not _is_of_driver(cause):
                raise
            if table and (reason := _reason_of(cause)):
                raise SourceRejected(
                    "the database does not let us read a table",
                    hint="GRANT SELECT on it to the user in `url` of the source, or leave it out of"
                    " `tables`",
                    **facts,
                    why=reason,
                ) from None
            if is_disk_full(cause):
                self._give_up_connection()
                raise database_full(self.engine.url, **facts) from None
            kinds = {kind.__name__ for kind in type(cause).__mro__}
            if kinds & {"OperationalError", "InterfaceError"}:
                self._give_up_connection()
                raise SourceUnavailable(
                    "the database does not answer",
                    hint="start it, or correct `url` of the source",
                    **place_of(self.engine.url),
                    why=type(cause).__name__,
                    **facts,
                ) from None
            raise SourceRejected(
                "the database refuses the query", why=type(cause).__name__, **facts
            ) from None

    def _give_up_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


def _is_of_driver(error: BaseException) -> bool:
    """Returns whether it is a driver's error: Python's drivers have their own `Error`, which
    SQLAlchemy wraps."""
    return any(kind.__name__ in ("Error", "SQLAlchemyError") for kind in type(error).__mro__)


def _reason_of(error: BaseException) -> str:
    """Returns why one table cannot be read; empty if the database itself failed. Some drivers have
    one kind of error for both."""
    codes = [getattr(error, "sqlstate", None), *error.args[:1]]
    known = [REASONS[code] for code in codes if code in REASONS]
    if not known and str(error).startswith(("no such table", "no such column")):  # SQLite's
        known = ["the table, or a column, does not exist any more"]
    return next(iter(known), "")


def names_of(table: TableId) -> tuple[str, ...]:
    """Returns the names that a pipeline file may use for it."""
    return (str(table), table.name) if table.namespace else (table.name,)


def _beyond(ordered: Sequence[Any], after: Sequence[str]) -> Any:
    """Returns the condition for rows after the given one, without a comparison of tuples, which not
    every database supports and not every planner optimizes."""
    cases = []
    for index, column in enumerate(ordered):
        same = [ordered[each] == _literal(after[each]) for each in range(index)]
        cases.append(sa.and_(*same, column > _literal(after[index])))
    return sa.and_(ordered[0] >= _literal(after[0]), sa.or_(*cases))


def _compared(column: Any, dialect: str) -> Any:
    """Returns what rows are ordered and compared by. MySQL orders by the numbers of labels, and
    compares their texts; to SQLite a number is before any text, if its column has no type."""
    if dialect == "sqlite" and isinstance(column.type, sa.types.NullType):
        return sa.cast(column, sa.Text())
    if not isinstance(column.type, my.ENUM | my.SET):
        return column
    text = sa.func.convert(column.op("USING")(sa.literal_column("utf8mb4")))
    return sa.cast(text, sa.LargeBinary())


def _shown(column: Any, dialect: str, *, as_text: bool) -> Any:
    """Returns what is selected. MySQL shows a FLOAT with six digits, but a DOUBLE with all."""
    if as_text:
        return sa.cast(column, _text_type(dialect)).label(column.name)
    if isinstance(column.type, my.FLOAT):
        return (column * sa.literal_column("1e0")).label(column.name)
    return column


def _literal(text: str) -> Any:
    """Returns text that the database reads as a value of the column beside it."""
    return sa.literal_column("'" + text.replace("'", "''") + "'")


def _text_type(dialect: str) -> Any:
    return sa.CHAR() if dialect in ("mysql", "mariadb") else sa.Text()


def _copy(connection: sa.Connection, table: SqlTable, statement: str) -> pa.RecordBatch:
    """Reads PostgreSQL's COPY as CSV, in which a null is empty and an empty text is quoted."""
    from pyarrow import csv

    driver: Any = connection.connection.driver_connection
    data = BytesIO()
    question = f"COPY ({statement}) TO STDOUT (FORMAT csv)"
    with driver.cursor() as cursor, cursor.copy(question) as copy:
        for data_part in copy:
            data.write(data_part)
    schema = table.schema.arrow
    size = data.tell()
    if not size:
        return pa.RecordBatch.from_pylist([], schema=schema)
    data.seek(0)
    by_us = {
        field.name
        for field in schema
        if pa.types.is_binary(field.type) or pa.types.is_time(field.type)
    }
    kinds = {field.name: pa.string() if field.name in by_us else field.type for field in schema}
    try:
        found = csv.read_csv(
            data,
            # In one block, since a row must not extend over more than two of them.
            read_options=csv.ReadOptions(
                column_names=schema.names,
                use_threads=False,
                block_size=min(size + 1, BLOCK_BYTES_MAX),
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=kinds,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        raise SourceRejected(
            "a column has values that are not of its type, such as an infinite time",
            table=str(table.id),
            hint="leave the column out with `transform: drop`, or correct it at the source",
        ) from None
    columns = [column.combine_chunks() for column in found.columns]
    return batch_of(table.schema, columns)


def _last_texts(rows: pa.RecordBatch, table: SqlTable) -> list[str] | None:
    if not rows.num_rows:
        return None
    last = rows.slice(rows.num_rows - 1)
    return [_text_of(last.column(name)[0]) for name in table.order]


def _text_of(value: pa.Scalar) -> str:
    if pa.types.is_binary(value.type):
        return f"\\x{value.as_py().hex()}"
    if pa.types.is_time(value.type):
        text: str = times_to_iso_text(pa.array([value]))[0].as_py()
        return text.removesuffix("Z")
    return str(value.cast(pa.string()))


def _fetched_as_text(connection: sa.Connection, statement: str, width: int) -> list[list[Any]]:
    """Reads MySQL's values as text: whole columns are parsed later."""
    driver: Any = connection.connection.driver_connection
    decoders, driver.decoders = driver.decoders, {}
    try:
        cursor = driver.cursor()
        cursor.execute(statement)
        return columns_of(cursor.fetchall(), width)
    finally:
        driver.decoders = decoders
