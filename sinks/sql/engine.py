"""A connection from settings: strict, exact and in UTC."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core_log.foundation.database_errors import connection_error, refusal_of
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import SinkRejected, SinkUnavailable
from headwater.sinks.sql.dialects.dialect import Dialect
from headwater.sinks.sql.failures import is_of_driver
from headwater.sinks.sql.settings import SqlSettings

if TYPE_CHECKING:
    import sqlalchemy as sa


def engine_of(settings: SqlSettings, *, directory: Path) -> "sa.Engine":
    return engine_at(
        settings.url.get_secret_value(), directory=directory, timeout_ms=settings.connect_timeout_ms
    )


def dialect_of(engine: "sa.Engine") -> Dialect:
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
