"""From the address of a database to a connection that is strict, exact and in UTC."""

from pathlib import Path

import sqlalchemy as sa

from core_log.errors import ConfigError
from sinks.sql.dialects.dialect import Dialect
from sinks.sql.settings import SqlSettings

DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
}
TIMEOUTS = {"postgresql": "connect_timeout", "mysql": "connect_timeout", "sqlite": "timeout"}


def engine_of(settings: SqlSettings, *, directory: Path) -> sa.Engine:
    """Touches nothing yet. Relative files of SQLite are meant from `directory`."""
    try:
        url = sa.make_url(settings.url.get_secret_value())
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            "this is no address of a database",
            hint="write it as dialect://user:password@host:port/database; in user and password "
            "`@ : / %` are written %40 %3A %2F %25",
        ) from None
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    kind = url.get_backend_name()
    if kind == "sqlite" and url.database and url.database != ":memory:":
        url = url.set(database=str(directory / url.database))
    arguments = {}
    if kind in TIMEOUTS:
        arguments[TIMEOUTS[kind]] = max(1, settings.connect_timeout_ms // 1_000)
    try:
        return sa.create_engine(
            url, poolclass=sa.NullPool, connect_args=arguments, hide_parameters=True
        )
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        missing = error.name if isinstance(error, ImportError) else url.drivername
        raise ConfigError(
            "there is no driver for this database",
            dialect=url.drivername,
            hint=f"install it: pip install {missing}",
        ) from None


def dialect_of(engine: sa.Engine) -> Dialect:
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


def connect_to(engine: sa.Engine, dialect: Dialect) -> sa.Connection:
    connection = engine.connect()
    try:
        dialect.prepare(connection)
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection
