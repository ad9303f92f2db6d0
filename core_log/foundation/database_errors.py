"""Why a database refuses a connection of SQLAlchemy, and what to do about it, without any
password."""

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.core_log.foundation.disk_space import HINT, place_on_disk
from headwater.core_log.foundation.errors import DiskFull, HeadwaterError

if TYPE_CHECKING:
    import sqlalchemy as sa


class Refusal(NamedTuple):
    """The reason why a connection failed, and who can cure it."""

    reason: str
    hint: str
    passes: bool
    """True if time may cure it."""


REFUSALS: tuple[tuple[str, Refusal], ...] = (
    (
        r"connection refused",
        Refusal("connection refused", "start it, or correct host and port in {url}", True),
    ),
    (
        r"name or service not known|nodename nor servname|getaddrinfo|no address associated"
        r"|failed to resolve host|could not translate host name|name resolution",
        Refusal("unknown host", "correct the host in {url}", True),
    ),
    (
        r"timed? ?out|timeout expired",
        Refusal("timed out", "correct host and port in {url}, or let the firewall pass it", True),
    ),
    (
        r"no route to host|network is unreachable",
        Refusal("no route to the host", "correct the host in {url}", True),
    ),
    (
        r"permission denied for database|access denied for user .* to database",
        Refusal(
            "the user has no right to the database", "GRANT it to the user, or correct {url}", False
        ),
    ),
    (
        r"unknown database|database \S+ does not exist",
        Refusal("unknown database", "create it, or correct its name in {url}", False),
    ),
    (
        r"authentication failed|no password supplied|access denied for user|role \S+ does not exist"
        r"|no pg_hba\.conf entry|login failed",
        Refusal("authentication failed", "correct user or password in {url}", False),
    ),
    (
        r"too many connections|too many clients|remaining connection slots",
        Refusal("too many connections", "let the database have more of them", True),
    ),
    (
        r"starting up|shutting down|not yet accepting",
        Refusal("the server starts or stops", "wait until it has started", True),
    ),
    (
        r"certificate verify failed|does not match host name|root certificate file"
        r"|server does not support ssl|ssl is required|ssl connection is required",
        Refusal(
            "TLS negotiation failed",
            "correct the options of TLS in {url}, or the certificates of the server",
            False,
        ),
    ),
    (
        r"no such file or directory",
        Refusal("the socket does not exist", "start it, or correct the host in {url}", True),
    ),
    (
        r"file is not a database",
        Refusal("the file is not an SQLite database", "correct the path in {url}", False),
    ),
)
"""Phrases of drivers and servers in lower case, and what they mean; the first one found counts."""
ELSE = "start it, or correct {url}"
UNREACHABLE = "the database cannot be reached"
NOT_US = "the database refuses the connection"


def refusal_of(error: BaseException) -> Refusal | None:
    """Returns the meaning of the driver's message; None if it is not known."""
    said = str(getattr(error, "orig", None) or error).lower()
    return next((known for words, known in REFUSALS if re.search(words, said)), None)


def connection_error(
    error: BaseException,
    engine: "sa.Engine",
    *,
    part: str,
    unavailable: type[HeadwaterError],
    rejected: type[HeadwaterError],
) -> HeadwaterError:
    """Returns the error for a connection that failed. `part` owns the `url` that the hint names."""
    found = _of_file(engine.url) or refusal_of(error)
    if found is None:
        kind = type(getattr(error, "orig", None) or error).__name__
        found = Refusal(kind, ELSE, passes=True)
    problem, told = (UNREACHABLE, unavailable) if found.passes else (NOT_US, rejected)
    hint = found.hint.format(url=f"`url` of the {part}")
    return told(problem, hint=hint, **place_of(engine.url), reason=found.reason)


def place_of(url: "sa.URL") -> dict[str, Any]:
    """Returns the database's address as facts of an error."""
    if url.get_backend_name() == "sqlite":
        return {"path": url.database}
    facts = {"host": url.host, "port": url.port or PORTS.get(url.get_backend_name())}
    return {name: value for name, value in facts.items() if value}


DISK_FULL_STATE = "53100"
SERVER_HINT = "free some space on the disk of the server; everything goes on by itself after that"
DISK_FULL_CODES = frozenset({1021, 1114})
"""MySQL's numbers for a full disk and for a table that cannot grow."""


def is_disk_full(error: BaseException) -> bool:
    """Returns whether a database answers that its own disk is full."""
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == DISK_FULL_STATE:
        return True
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return True
    is_mysql = any(kind.__name__ == "MySQLError" for kind in type(cause).__mro__)
    return is_mysql and bool(cause.args) and cause.args[0] in DISK_FULL_CODES


def database_full(url: "sa.URL | None", **facts: Any) -> DiskFull:
    """Returns the error: of a file with its path, its disk and the free bytes, of a server with its
    address."""
    if url is not None:
        is_file = url.get_backend_name() == "sqlite"
        facts |= place_on_disk(url.database) if is_file else place_of(url)
    return DiskFull("the disk of the database is full", hint=HINT, **facts)


PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}


def _of_file(url: "sa.URL") -> Refusal | None:
    """Returns the reason why SQLite cannot open a file; SQLite's own message is the same for all
    reasons."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    file = Path(url.database)
    if file.is_dir():
        return Refusal("the path is a directory", "name a file in {url}", passes=False)
    if not file.parent.is_dir():
        hint = f"mkdir -p {file.parent}, or correct the path in {{url}}"
        return Refusal("the directory is missing", hint, passes=False)
    return None
