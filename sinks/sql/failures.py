"""Driver errors as errors of ours, without any value of a row, and rows that a table cannot
hold."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.core_log.foundation.database_errors import (
    connection_error,
    database_full,
    is_disk_full,
    refusal_of,
)
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import (
    HeadwaterError,
    RecordsRejected,
    SinkRejected,
    SinkUnavailable,
    failure_of,
)
from headwater.core_log.rows.rejects import scalar_class
from headwater.core_log.rows.schema_text import type_text
from headwater.sinks.sql.change_buffer import BufferedChanges
from headwater.sinks.sql.dialects.dialect import Dialect, DriverProblem
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.table_layout import SqlTableLayout
from headwater.sinks.type_conversion import find_changed

if TYPE_CHECKING:
    import sqlalchemy as sa

COLUMN = re.compile(
    r"^COPY .*?, line \d+, column (.+?): |column [`'](?:.*[`']\.[`'])?(.+?)[`'] at row"
)
"""How PostgreSQL and MySQL name a column; the value is elsewhere in the message."""


class RetryTransaction(Exception):
    """The same transaction may succeed if it is repeated at once."""


class SchemaChangeFirst(Exception):
    """These statements must run outside the transaction, which then begins again."""

    def __init__(
        self, statements: list[str], *, table: str, begin: Callable[[], object] | None = None
    ) -> None:
        """`begin` is called before them, in a transaction of its own."""
        super().__init__(f"{len(statements)} statements")
        self.statements, self.table, self.begin = statements, table, begin


def meaning(dialect: Dialect, error: BaseException) -> tuple[DriverProblem, str]:
    """Classifies a driver's error, wrapped by SQLAlchemy or not."""
    return dialect.problem(getattr(error, "orig", None) or error)


class RefusedRow(NamedTuple):
    """The reason why a database refuses a row, and the source column that it names, if any."""

    problem: DriverProblem
    why: str
    column: str


def refused_by(dialect: Dialect, error: BaseException, *, columns: Mapping[str, str]) -> RefusedRow:
    """Returns the reason; `columns` are the source's, to their names in the database."""
    cause = getattr(error, "orig", None) or error
    diag = getattr(cause, "diag", None)
    reason = str(cause) if diag is None else f"{diag.context}\n"
    found = {each[1] or each[2] for each in COLUMN.finditer(reason)}
    found |= {getattr(diag, "column_name", None)}
    named = [name for name, short in columns.items() if short in found]
    return RefusedRow(*meaning(dialect, error), column=named[0] if len(named) == 1 else "")


@contextmanager
def translate_errors(dialect: Dialect, *, table: str = "") -> Iterator[None]:
    """Turns driver errors into errors of ours. Other Python errors are bugs: they get their table's
    name, if it is known."""
    try:
        yield
    except (HeadwaterError, RetryTransaction, SchemaChangeFirst):
        raise
    except Exception as error:
        if not is_of_driver(error):
            if table:
                raise failure_of(error, table=table) from error
            raise
        raise ours(dialect, error, table=table) from None


def is_of_driver(error: BaseException) -> bool:
    """Returns whether a database driver raised the error, directly or through SQLAlchemy."""
    kinds = type(error).__mro__
    return isinstance(error, OverflowError) or any(
        kind.__name__ in ("Error", "SQLAlchemyError") for kind in kinds
    )


def ours(dialect: Dialect, error: BaseException, *, table: str = "") -> Exception:
    problem, reason = meaning(dialect, error)
    facts: dict[str, Any] = {"why": reason, "database": dialect.name}
    if table:
        facts["table"] = table
    if is_disk_full(error):
        return database_full(dialect.url, **facts)
    if problem is DriverProblem.AWAY:
        return SinkUnavailable("the database does not answer", **facts)
    if problem is DriverProblem.AGAIN:
        return RetryTransaction(reason)
    if problem is DriverProblem.GONE:
        return SinkUnavailable("a table of the target is gone or has changed", **facts)
    return SinkRejected("the database refuses the statement or value", **facts)


def engine_of(settings: SqlSettings, *, directory: Path) -> "sa.Engine":
    return engine_at(
        settings.url.get_secret_value(), directory=directory, timeout_ms=settings.connect_timeout_ms
    )


def dialect_of(engine: "sa.Engine") -> Dialect:
    dialect = _dialect_of(engine)
    dialect.url = engine.url
    return dialect


def _dialect_of(engine: "sa.Engine") -> Dialect:
    if engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg":
        from headwater.sinks.sql.dialects.postgresql import PostgresqlDialect

        return PostgresqlDialect()
    if engine.dialect.name in ("mysql", "mariadb") and engine.dialect.driver == "pymysql":
        from headwater.sinks.sql.dialects.mysql import MysqlDialect

        return MysqlDialect()
    if engine.dialect.name == "sqlite" and engine.dialect.driver == "pysqlite":
        from headwater.sinks.sql.dialects.sqlite import SqliteDialect

        return SqliteDialect()
    from headwater.sinks.sql.dialects.generic import GenericDialect

    return GenericDialect(engine)


def connect_to(engine: "sa.Engine", dialect: Dialect) -> "sa.Connection":
    with _in_our_words(engine, only_known=False):
        connection = engine.connect()
    try:
        with _in_our_words(engine, only_known=True):
            dialect.prepare(connection)
        connection.connection.commit()  # SQLAlchemy does not know of statements that bypass it
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _in_our_words(engine: "sa.Engine", *, only_known: bool) -> Iterator[None]:
    """Translates errors of connecting: SQLite opens its file only when a connection is prepared."""
    try:
        yield
    except Exception as error:
        if not is_of_driver(error) or (only_known and refusal_of(error) is None):
            raise
        raise connection_error(
            error, engine, part="sink", unavailable=SinkUnavailable, rejected=SinkRejected
        ) from None


def describe(chunk: BufferedChanges, row: int, refused: RefusedRow) -> str:
    if not refused.column:
        return refused.why
    kind = chunk.schema.column(refused.column).type
    value = scalar_class(chunk.rows.column(refused.column)[row])
    column = f"column {refused.column!r} comes as {type_text(kind)}"
    return f"{refused.why}: {column} and the value is {value}"


def rejected_error(chunk: BufferedChanges, reasons: dict[int, str]) -> RecordsRejected:
    """Returns the error for one partition, the first record's; others follow when the slice is
    repeated."""
    origin = int(chunk.origins[min(reasons)])
    partition = chunk.partitions[origin]
    found = {
        int(chunk.offsets[row].as_py()): why
        for row, why in reasons.items()
        if int(chunk.origins[row]) == origin
    }
    return RecordsRejected(
        "records do not fit the target's table",
        topic=partition.topic,
        partition=partition.partition,
        reasons=found,
    )


def find_unlike(layout: SqlTableLayout, chunk: BufferedChanges) -> dict[int, str]:
    """Returns rows that a database would store with another value, and why.

    Most databases round numbers and truncate timestamps silently. Only columns whose types stay are
    checked.
    """
    found: dict[int, str] = {}
    for name, kind in layout.stays.items():
        is_asked = name in chunk.schema.key or layout.mode == "append"
        for row in find_changed(chunk.rows.column(name), kind):
            if is_asked or not chunk.deleted[row]:  # a deleted row needs only its key
                value = scalar_class(chunk.rows.column(name)[row])
                found[row] = f"column {name!r} does not fit into {kind}: the value is {value}"
    return found
