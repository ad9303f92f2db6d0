"""From the settings to a connection that is strict, exact and in UTC."""

from pathlib import Path
from typing import TYPE_CHECKING

from core_log.database_address import engine_at
from sinks.sql.dialects.dialect import Dialect
from sinks.sql.settings import SqlSettings

if TYPE_CHECKING:
    import sqlalchemy as sa


def engine_of(settings: SqlSettings, *, directory: Path) -> "sa.Engine":
    return engine_at(
        settings.url.get_secret_value(), directory=directory, timeout_ms=settings.connect_timeout_ms
    )


def dialect_of(engine: "sa.Engine") -> Dialect:
    if engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg":
        from sinks.sql.dialects.postgresql import PostgresqlDialect

        return PostgresqlDialect()
    if engine.dialect.name in ("mysql", "mariadb") and engine.dialect.driver == "pymysql":
        from sinks.sql.dialects.mysql import MysqlDialect

        return MysqlDialect()
    if engine.dialect.name == "sqlite" and engine.dialect.driver == "pysqlite":
        from sinks.sql.dialects.sqlite import SqliteDialect

        return SqliteDialect()
    from sinks.sql.dialects.generic import GenericDialect

    return GenericDialect(engine)


def connect_to(engine: "sa.Engine", dialect: Dialect) -> "sa.Connection":
    connection = engine.connect()
    try:
        dialect.prepare(connection)
        connection.connection.commit()  # SQLAlchemy knows nothing of what was done by hand
    except BaseException:
        connection.close()
        raise
    return connection
