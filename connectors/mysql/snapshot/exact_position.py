"""Begins a consistent snapshot whose position is known exactly, without a lock."""

from threading import Event
from typing import NamedTuple

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.gtid_set import MariadbGtids
from headwater.connectors.mysql.server.server_identity import MysqlServer, MysqlSnapshotPoint
from headwater.connectors.mysql.snapshot.chunk_reader import (
    ISOLATION,
    MARIADB_SNAPSHOT,
    PAUSE_S,
    SNAPSHOT,
    TRIES_MAX,
    binlog_snapshot,
    shows_all_logged,
)
from headwater.core_log.foundation.errors import SourceUnavailable


class ExactSnapshot(NamedTuple):
    """An open transaction."""

    position: BinlogPosition
    """All that it shows is before it, and nothing behind it."""
    at_us: int
    """By the clock of the server."""

    @property
    def point(self) -> MysqlSnapshotPoint:
        return MysqlSnapshotPoint(self.position.place, self.at_us)


def begin_exact_snapshot(
    connection: MysqlConnection, server: MysqlServer, stopped: Event, *, has_gtids: bool
) -> ExactSnapshot:
    """Begins a transaction, and returns the position up to which it shows everything.

    MySQL does not say the position of a snapshot. We know it if the binary log did not grow while
    the transaction began, and if nothing that was logged before was still to become visible. On a
    busy server this is tried until it holds.
    """
    with in_our_words("the snapshot cannot be read"):
        for _ in range(TRIES_MAX):
            found = try_exact_snapshot(connection, server)
            if found is not None:
                position = found.position if has_gtids else BinlogPosition(None, found.point.place)
                return found._replace(position=position)
            connection.execute("ROLLBACK")
            if stopped.wait(PAUSE_S):
                break
    raise SourceUnavailable(
        "the position of a snapshot cannot be known: the server commits without a pause",
        hint="try again when it is less busy",
    )


def try_exact_snapshot(connection: MysqlConnection, server: MysqlServer) -> ExactSnapshot | None:
    """Begins a transaction; returns None if it may show more or less than the position says."""
    connection.execute(ISOLATION)
    at_us = server.now_us(connection)
    found = _of_mariadb(connection) if server.is_mariadb else _of_mysql(connection, server)
    return None if found is None else ExactSnapshot(found, at_us)


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
