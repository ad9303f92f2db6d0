"""Says what at the server would prevent a start or an exact capture, with the cures."""

import re
from collections.abc import Iterator

from headwater.connectors.mysql.resume_check import check_resumable, unmet_requirements
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable, identifier
from headwater.connectors.mysql.server.connection import MysqlConnection, connect, in_our_words
from headwater.connectors.mysql.server.server_identity import MysqlServer, identify
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError
from headwater.core_log.model.changes import Positions

CASCADES = re.compile(r"FOREIGN KEY .*\bON (DELETE|UPDATE) (CASCADE|SET NULL)")
"""A line of SHOW CREATE TABLE: MariaDB shows its views of foreign keys only to those who may
write."""
LOGS_CASCADES_SINCE = (9, 6)
EXPIRE_S_MIN = 24 * 3_600


def find_tables(settings: MysqlSettings) -> list[MysqlTable]:
    connection = connect(settings)
    try:
        server = identify(connection)
        return MysqlCatalog(settings, server.is_mariadb).tables(connection)
    finally:
        connection.close()


def examine(settings: MysqlSettings) -> list[Diagnostic]:
    try:
        connection = connect(settings)
    except HeadwaterError as error:
        return [Diagnostic(error.statement, error.hint)]
    try:
        server = identify(connection)
        return list(_findings(connection, server, settings))
    except HeadwaterError as error:
        return [Diagnostic(error.statement, error.hint)]
    finally:
        connection.close()


def _findings(
    connection: MysqlConnection, server: MysqlServer, settings: MysqlSettings
) -> Iterator[Diagnostic]:
    for problem, cure in unmet_requirements(connection, server):
        yield Diagnostic(problem, cure)
    yield from _replication_rights(connection, server)
    yield from _lock_rights(connection, settings)
    tables = MysqlCatalog(settings, server.is_mariadb).tables(connection)
    if not tables:
        yield Diagnostic(
            "no table matches `tables`, or the user may not SELECT from any",
            "correct `tables` as database.table, or GRANT SELECT ON database.* TO the user",
        )
    for table in tables:
        if table.problem:
            yield Diagnostic(
                f"{table.table} is left out: {table.problem}",
                table.hint,
                is_fatal=False,
                left_out=(str(table.table),),
            )
    if not server.has_gtids:
        yield Diagnostic(
            "the server has no GTIDs (gtid_mode): no other server can go on in its place",
            "SET GLOBAL enforce_gtid_consistency = ON; then gtid_mode OFF_PERMISSIVE,"
            " ON_PERMISSIVE and ON, one after the other",
            is_fatal=False,
        )
    yield from _cascades(connection, server, tables)
    yield from _retention(connection, server)


def _replication_rights(connection: MysqlConnection, server: MysqlServer) -> Iterator[Diagnostic]:
    rows = [str(row[0]).upper() for row in connection.rows("SHOW GRANTS")]
    has_roles = any(" ON " not in row for row in rows)
    grants = " ".join(rows)
    if has_roles or "ALL PRIVILEGES ON *.*" in grants:
        return  # the rights of roles are not listed here
    monitor = "BINLOG MONITOR" if server.is_mariadb else "REPLICATION CLIENT"
    for right in ("REPLICATION SLAVE", monitor):
        if right not in grants:
            yield Diagnostic(
                f"the user lacks the right {right}", f"GRANT {right} ON *.* TO the user"
            )


def _lock_rights(connection: MysqlConnection, settings: MysqlSettings) -> Iterator[Diagnostic]:
    snapshot = settings.snapshot
    if snapshot.locking == "none" or snapshot.mode == "never":
        return
    rows = [str(row[0]).upper() for row in connection.rows("SHOW GRANTS")]
    rights = ("RELOAD", "FLUSH_TABLES", "LOCK TABLES", "ALL PRIVILEGES")
    has_roles = any(" ON " not in row for row in rows)
    if not has_roles and not any(right in row for right in rights for row in rows):
        yield Diagnostic(
            "the user may not lock tables, which `snapshot.locking` asks for at the first start",
            "GRANT RELOAD ON *.* or LOCK TABLES ON database.* TO the user, or write"
            " `snapshot.locking: none`",
            is_fatal=snapshot.when_not_locked == "stop",
        )


def _cascades(
    connection: MysqlConnection, server: MysqlServer, tables: list[MysqlTable]
) -> Iterator[Diagnostic]:
    """Older servers do not log what a foreign key changes by itself."""
    if not server.is_mariadb and server.numbers[:2] >= LOGS_CASCADES_SINCE:
        return
    named = []
    for table in (each.table for each in tables if not each.problem):
        name = f"{identifier(table.namespace)}.{identifier(table.name)}"
        with in_our_words("a table cannot be looked at", table=str(table)):
            [[_, text, *_]] = connection.rows(f"SHOW CREATE TABLE {name}")
        if CASCADES.search(str(text)):
            named.append(table)
    if named:
        yield Diagnostic(
            f"rows of {', '.join(map(str, named))} can be changed by foreign keys (CASCADE, SET"
            " NULL), and this server does not log such changes: the log then differs from the"
            " table",
            "replace these rules by triggers, whose changes are logged; or start a snapshot of the"
            " table after such changes",
            is_fatal=False,
        )


def _retention(connection: MysqlConnection, server: MysqlServer) -> Iterator[Diagnostic]:
    seconds = connection.rows("SHOW GLOBAL VARIABLES LIKE 'binlog_expire_logs_seconds'")
    value = int(seconds[0][1]) if seconds else 0
    if 0 < value < EXPIRE_S_MIN:
        yield Diagnostic(
            f"the server keeps its binary log for {value} seconds only: a source that stands still"
            " for longer loses its position",
            "SET GLOBAL binlog_expire_logs_seconds = 604800",
            is_fatal=False,
        )


def examine_position(settings: MysqlSettings, stored: Positions) -> list[Diagnostic]:
    try:
        connection = connect(settings)
    except HeadwaterError:
        return []  # `examine` says it
    try:
        check_resumable(connection, identify(connection), stored)
    except HeadwaterError as error:
        return [Diagnostic(error.statement, error.hint)]
    finally:
        connection.close()
    return []
