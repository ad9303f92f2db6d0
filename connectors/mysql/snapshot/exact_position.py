"""Begins a consistent snapshot whose position is known exactly, without a lock."""

from threading import Event

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.gtid_set import MariadbGtids
from headwater.connectors.mysql.server.server_identity import MysqlServer
from headwater.connectors.mysql.snapshot.chunk_reader import (
    ISOLATION,
    MARIADB_SNAPSHOT,
    SNAPSHOT,
    binlog_snapshot,
)
from headwater.connectors.mysql.snapshot.visible_commits import (
    PAUSE_S,
    TRIES_MAX,
    shows_all_logged,
)
from headwater.core_log.foundation.errors import SourceUnavailable


def begin_exact_snapshot(
    connection: MysqlConnection, server: MysqlServer, stopped: Event, *, has_gtids: bool
) -> BinlogPosition:
    """Begins a transaction, and returns the position up to which it shows everything.

    MySQL does not say the position of a snapshot. We know it if the binary log did not grow while
    the transaction began, and if nothing that was logged before was still to become visible. On a
    busy server this is tried until it holds.
    """
    with in_our_words("the snapshot cannot be read"):
        for _ in range(TRIES_MAX):
            found = try_exact_snapshot(connection, server)
            if found is not None:
                return found if has_gtids else BinlogPosition(None, found.place)
            connection.execute("ROLLBACK")
            if stopped.wait(PAUSE_S):
                break
    raise SourceUnavailable(
        "the position of a snapshot cannot be known: the server commits without a pause",
        hint="try again when it is less busy",
    )


def try_exact_snapshot(connection: MysqlConnection, server: MysqlServer) -> BinlogPosition | None:
    """Begins a transaction; returns None if it may show more or less than the position says."""
    connection.execute(ISOLATION)
    return _of_mariadb(connection) if server.is_mariadb else _of_mysql(connection, server)


def _of_mariadb(connection: MysqlConnection) -> BinlogPosition:
    connection.execute(MARIADB_SNAPSHOT)
    place = binlog_snapshot(connection)
    text = connection.value(f"SELECT binlog_gtid_pos('{place.file}', {place.position})")
    return BinlogPosition(MariadbGtids.parse(str(text or "")), place)


def _of_mysql(connection: MysqlConnection, server: MysqlServer) -> BinlogPosition | None:
    end = server.log_end(connection)
    if not shows_all_logged(connection):
        return None
    executed = server.executed_gtids(connection)
    connection.execute(SNAPSHOT)
    if server.log_end(connection) != end:
        return None
    return BinlogPosition(executed, end)
