"""Connections to PostgreSQL with this source's settings, and the server's errors as ours."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeGuard

import psycopg
from psycopg import conninfo

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.database_errors import (
    ELSE,
    NOT_US,
    PORTS,
    SERVER_HINT,
    UNREACHABLE,
    Refusal,
    is_disk_full,
    refusal_of,
)
from headwater.core_log.foundation.errors import (
    DiskFull,
    HeadwaterError,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.foundation.tcp_keepalive import libpq_options
from headwater.core_log.model.table_schema import TableId

PgConnection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "jit": "off",  # without JIT, which compiles for seconds for a catalog query of milliseconds
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Session settings: the text form of values, the same for the stream and for COPY; an error instead
of a gap for rows that a policy hides; and no statement timeout, which would end a long snapshot."""

TRANSACTIONS_LIMITED_SINCE = 17_0000
"""Another such limit; older servers refuse a connection that names it."""

PARAMETERS: dict[str, str | int] = {"client_encoding": "UTF8", **libpq_options()}

HINTS = {
    r"password authentication failed|SASL authentication failed|no password supplied": (
        "correct user or password in `url` of the source"
    ),
    r"no pg_hba\.conf entry.* no encryption": (
        "add sslmode=require to `url` of the source, or let the role in without TLS in pg_hba.conf"
    ),
    r"no pg_hba\.conf entry": (
        "let the role in with a line of pg_hba.conf for its database, then SELECT pg_reload_conf()"
    ),
    r'role "[^"]*" does not exist': "correct the user in `url`, or create the role",
    r'database "[^"]*" does not exist': "correct the database in `url` of the source",
    r"permission denied for database": "GRANT CONNECT ON DATABASE ... TO the role",
    r"permission denied to start WAL sender|must be superuser or replication role": (
        "ALTER ROLE ... WITH REPLICATION, as a superuser"
    ),
    r"unsupported startup parameter": (
        "point `url` at PostgreSQL itself: a pooler between cannot pass replication on"
    ),
    r"server does not support SSL|SSL connection is required|certificate verify failed"
    r"|does not match host name|root certificate file": (
        "correct sslmode or sslrootcert in `url` of the source"
    ),
    r"invalid connection option|invalid sslmode value|invalid integer value": (
        "correct `url` of the source"
    ),
}
"""Messages of a server or libpq without SQLSTATE while connecting, and their hints. Other messages
count as temporary."""

FATAL = re.compile(r"FATAL: +(.*?)(?= connection to server at|$)")
"""The server's own message when it ends a connection attempt."""

PASSING = {"08", "40", "53", "55", "57", "58"}
"""Classes of SQLSTATE that may pass: connections, conflicts, resources, objects in use, a server
that stops or starts."""
SPEAKING = {"0A", "28", "2B", "3D", "3F", "42", "53", "55", "57", "58"}
"""Classes whose messages name objects and limits, never values of rows."""
RIGHTS, IN_USE, EXISTS, READ_ONLY = "42501", "55006", "42710", "25006"
NOT_IN_ENCODING = {"22021", "22P05"}
"""Text that is invalid in the database's encoding, or has no equivalent in UTF-8."""
NOT_UTF8_HINT = (
    "mend that text, or keep it in a column of bytea; where the stream has come to it, then drop"
    " the slot and write `position_mismatch: resnapshot` into the source"
)
NOT_UTF8 = "text that is not UTF-8"
NO_ENCODING = "SQL_ASCII"
"""Encoding of a database that accepts any bytes as text; as a client's encoding: bytes are not
converted."""
CHANGED = {"42P01", "42703", "3F000"}
"""The table, column or schema no longer exists: the next run looks again."""


async def connect(
    settings: PostgresSettings, *, replication: bool = False, name: str = "headwater"
) -> PgConnection:
    """Returns a connection in autocommit mode; with `replication`, one that also accepts
    replication commands, but then no parameters of a statement.

    `name` is its name in `pg_stat_activity`.
    """
    parameters = parameters_of(settings, name=name)
    if replication:
        parameters["replication"] = "database"
    try:
        connection: PgConnection = await psycopg.AsyncConnection.connect(
            **parameters, autocommit=True, prepare_threshold=None
        )
    except psycopg.Error as error:
        raise _refused_error(error, parameters) from None
    if connection.info.parameter_status("IntervalStyle") != SESSION["IntervalStyle"]:
        await connection.close()
        raise SourceRejected(
            "the connection does not take on how values are to be written",
            hint="connect `url` to PostgreSQL directly: a connection pooler drops `options`",
        )
    if connection.info.server_version >= TRANSACTIONS_LIMITED_SINCE:
        try:
            with in_our_words("the connection does not take on how long it may last"):
                await connection.execute("SET transaction_timeout = 0")
        except BaseException:  # a caller that is cancelled here has nothing to close yet
            await connection.close()
            raise
    return connection


def has_no_encoding(connection: PgConnection) -> bool:
    """Returns whether text may have any encoding. The server then refuses to send invalid UTF-8 and
    everything after it, and does not name the row."""
    return connection.info.parameter_status("server_encoding") == NO_ENCODING


def parameters_in(url: str) -> dict[str, Any]:
    """Returns an address or a connection string as libpq reads it."""
    url = re.sub(r"^postgres(ql)?\+psycopg2?://", "postgresql://", url)
    try:
        return conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise SourceRejected(
            "`url` is no address that libpq can read",
            hint="write postgresql://user:password@host:port/database, with %xx for what is special"
            " in a password",
        ) from None


def parameters_of(settings: PostgresSettings, *, name: str) -> dict[str, Any]:
    """Returns `url` as libpq's parameters with our own; options of the url win."""
    given = parameters_in(settings.url.get_secret_value())
    ours = " ".join(f"-c {key}={value}" for key, value in SESSION.items())
    limit = {"connect_timeout": max(2, round(settings.connect_timeout_ms / 1_000))}
    return {
        **PARAMETERS,
        **limit,
        **given,
        "options": f"{given.get('options', '')} {ours}".strip(),
        "application_name": name[:63],
    }


@contextmanager
def in_our_words(doing: str, **facts: Any) -> Iterator[None]:
    """Context manager: raises the driver's errors as ours; `doing` is the failed work, as a
    sentence."""
    try:
        yield
    except psycopg.Error as error:
        raise to_headwater_error(error, doing, **facts) from None


def to_headwater_error(error: psycopg.Error, doing: str, **facts: Any) -> HeadwaterError:
    """Returns our error, with the server's message only if it cannot quote a value of a row."""
    state = error.sqlstate
    if state is None:
        return SourceUnavailable(doing, why=type(error).__name__, **facts)
    if state[:2] in SPEAKING and error.diag.message_primary:
        facts["why"] = error.diag.message_primary
    facts["sqlstate"] = state
    if is_disk_full(error):
        return DiskFull("the disk of the server is full", hint=SERVER_HINT, doing=doing, **facts)
    if state in NOT_IN_ENCODING:
        return not_utf8(doing, **facts)
    if state[:2] in PASSING:
        return SourceUnavailable(doing, **facts)
    hint = "headwater doctor prints what the role lacks" if state == RIGHTS else ""
    return SourceRejected(doing, hint=hint, **facts)


def not_utf8(doing: str, **facts: Any) -> SourceRejected:
    """Returns the error without the server's message, which would quote bytes of the row."""
    return SourceRejected(doing, why=NOT_UTF8, hint=NOT_UTF8_HINT, **facts)


def _refused_error(error: psycopg.Error, parameters: dict[str, Any]) -> HeadwaterError:
    """Returns the error without the message: the server's names roles and databases, libpq's also
    parts of a broken address."""
    said = " ".join(str(error).split())
    place = {"host": parameters.get("host"), "port": parameters.get("port", PORTS["postgresql"])}
    facts = {name: value for name, value in place.items() if value}
    fatal = FATAL.search(said)
    for pattern, hint in HINTS.items():
        if found := re.search(pattern, said):
            reason = fatal[1] if fatal else found[0]
            return SourceRejected(NOT_US, hint=hint, **facts, reason=reason)
    known = refusal_of(error) or Refusal(type(error).__name__, ELSE, passes=True)
    reason = fatal[1] if fatal else known.reason
    hint = known.hint.format(url="`url` of the source")
    return SourceUnavailable(UNREACHABLE, hint=hint, **facts, reason=reason)


def is_of_rows(error: HeadwaterError) -> TypeGuard[SourceRejected]:
    """Whether the server refused to read rows of one table, which says nothing of others."""
    state = error.facts.get("sqlstate")
    is_of_table = isinstance(error, SourceRejected) and "table" in error.facts
    return is_of_table and state is not None and state not in CHANGED


def broken_off(error: SourceRejected) -> SourceUnavailable:
    """Returns the error for a table of which rows were emitted, without a position, before one that
    cannot be read. The next start leaves the table out, which reads it beside the stream."""
    return SourceUnavailable(
        "a table cannot be read to its end: it is left out from the next start on",
        table=error.facts["table"],
        why=error.statement,
    )


def quote(name: str) -> str:
    """Returns the identifier in quotes, so that case and keywords do not matter."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableId) -> str:
    return f"{quote(table.namespace)}.{quote(table.name)}"


def table_list(tables: Iterable[TableId]) -> str:
    return ", ".join(map(quoted_table, sorted(tables)))


def member_list(tables: Iterable[TableId]) -> str:
    """Returns the list with ONLY: the server would otherwise add or drop inheriting tables, which
    are listed separately."""
    return ", ".join(f"ONLY {quoted_table(each)}" for each in sorted(tables))
