"""Checks the address of a database from a pipeline file and makes an engine of SQLAlchemy from
it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.tcp_keepalive import (
    LOGIN_LIMITS,
    begin_session,
    libpq_options,
)

if TYPE_CHECKING:
    import sqlalchemy as sa


DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
}
"""The driver for an address that names none."""
TIMEOUTS = {
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "pymysql": "connect_timeout",
    "pysqlite": "timeout",
}
"""The drivers' names, in seconds, for the time they wait for a connection or a lock."""
DIALECT = re.compile(r"[A-Za-z][\w.]*(\+\w+)?:/")
CONNINFO = re.compile(r"\s*\w+\s*=")
"""A connection string of libpq (`key=value`) that is no address begins like this."""
POSTGRES = ("postgres://", "postgresql://")


class Secret(Protocol):
    def get_secret_value(self) -> str: ...


S = TypeVar("S", bound=Secret)


def check_address(url: S) -> S:
    """Raises `ValueError` if no dialect of SQLAlchemy can fit the address. The dialect is not
    loaded."""
    address = url.get_secret_value()
    if NOT_SET in address:
        return url
    if address.startswith("jdbc:"):
        raise ValueError("the address is one for Java: remove `jdbc:`, and name user and password")
    if not DIALECT.match(address):
        raise ValueError(
            "the address is not a database address such as dialect://user:password@host/name"
        )
    return url


def check_postgres_address(url: S) -> S:
    """Raises `ValueError` for text that libpq would read as something else, such as a database
    name."""
    address = url.get_secret_value()
    if NOT_SET in address:
        return url
    if not address.startswith(POSTGRES) and ("://" in address or not CONNINFO.match(address)):
        raise ValueError(
            "the address is not one of PostgreSQL, such as postgresql://user:password@host:port/name"
        )
    return url


SESSION_ARGUMENTS = {"pymysql": {"sql_mode": "NO_BACKSLASH_ESCAPES"}}
"""Arguments of every session. The server's own mode may want other quotes around names, which
SQLAlchemy would keep for sessions in which we set another mode, or change what is read."""


def engine_at(address: str, *, directory: Path, timeout_ms: int) -> "sa.Engine":
    """Returns an engine without a connection pool; it does not connect yet. Relative files of
    SQLite lie in `directory`. No error of this engine shows values of a row."""
    import sqlalchemy as sa

    url = url_of(address, directory=directory)
    try:
        driver = url.get_driver_name()
        usual = _usual_arguments(driver, seconds=max(1, timeout_ms // 1_000))
        given = {name: value for name, value in usual.items() if name not in url.query}
        arguments = given | SESSION_ARGUMENTS.get(driver, {})
        engine = sa.create_engine(
            url, poolclass=sa.NullPool, connect_args=arguments, hide_parameters=True
        )
    except sa.exc.NoSuchModuleError:
        # The hint names no package: `postgre://` would have a stranger's package installed.
        raise ConfigError(
            "SQLAlchemy does not know this kind of database",
            dialect=url.drivername,
            hint="correct the part before ://, such as sqlite, postgresql or mysql; other"
            " databases want their SQLAlchemy dialect installed",
        ) from None
    except ImportError as error:
        raise ConfigError(
            "the driver for this database is not installed",
            dialect=url.drivername,
            hint=f"install it: pip install {error.name}",
        ) from None
    if driver == "pymysql":
        lifted = [name for name in LOGIN_LIMITS if name in given]
        sa.event.listen(engine, "connect", lambda opened, _: begin_session(opened, lifted=lifted))
    return engine


def _usual_arguments(driver: str, *, seconds: int) -> dict[str, int]:
    """Returns a driver's arguments for an address that does not name them."""
    arguments = {TIMEOUTS[driver]: seconds} if driver in TIMEOUTS else {}
    if driver in ("psycopg", "psycopg2"):
        return arguments | libpq_options()
    if driver == "pymysql":
        return arguments | dict.fromkeys(LOGIN_LIMITS, seconds)
    return arguments


def url_of(address: str, *, directory: Path) -> "sa.URL":
    """Returns the address with our driver. Errors never show the address, because it holds a
    password."""
    import sqlalchemy as sa

    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            "the address is not a database address",
            hint="write it as dialect://user:password@host:port/database; in user and password "
            "`@ : / %` are written %40 %3A %2F %25",
        ) from None
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return url.set(database=str(directory / str(url.database))) if is_file else url


PORT_MAX = 65_535
NOT_SET = "not-set-in-this-environment"
"""Stands for a variable that a command does not need, and so for any address."""


def check_host_ports(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Raises `ValueError` unless each address is a host and a port."""
    for address in addresses:
        if NOT_SET in address:
            continue
        if "://" in address:
            raise ValueError("a broker's address has no scheme: remove the part that ends with ://")
        host, _, port = address.rpartition(":")
        if not _is_host(host) or not _is_port(port):
            raise ValueError("the address is not one of a broker: HOST:PORT, such as kafka-1:9092")
    return addresses


def check_http_address(address: str) -> str:
    """Raises `ValueError` unless the text is empty or an address of HTTP."""
    if not address or NOT_SET in address:
        return address
    wrong = ValueError("the address is not one of a server: http://HOST:PORT or https://HOST")
    try:
        parts = urlsplit(address)
        port = parts.port  # urlsplit raises if the port is invalid
    except ValueError:
        raise wrong from None
    is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    if not is_whole or " " in address:
        raise wrong
    return address


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return host.endswith("]") and len(host) > len("[]")
    return bool(host) and not set(host) & set(":/@ ,")


def _is_port(port: str) -> bool:
    return port.isdecimal() and 0 < int(port) <= PORT_MAX
