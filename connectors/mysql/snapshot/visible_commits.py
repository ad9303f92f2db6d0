"""Waits until a server shows every transaction that is in its binary log."""

from threading import Event

from headwater.connectors.mysql.server.connection import MysqlConnection
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlServer
from headwater.core_log.foundation.errors import SourceUnavailable

PAUSE_S, TRIES_MAX = 0.002, 5_000
OWNED = "SELECT @@global.gtid_owned"
ANONYMOUS = "SHOW GLOBAL STATUS LIKE 'Ongoing_anonymous_transaction_count'"
"""MySQL counts transactions without a GTID from before they are logged until they are visible."""


def shows_all_logged(connection: MysqlConnection) -> bool:
    """Whether nothing that is in the log of MySQL is still to become visible."""
    if connection.value(OWNED):
        return False
    [(_, count)] = connection.rows(ANONYMOUS)
    return int(count) == 0


def visible_end(connection: MysqlConnection, server: MysqlServer) -> FilePosition:
    """Returns a place of the log before which everything is visible."""
    end, never = server.log_end(connection), Event()
    for _ in range(TRIES_MAX):
        if shows_all_logged(connection):
            return end
        never.wait(PAUSE_S)
    raise SourceUnavailable(
        "the position of a snapshot cannot be known: the server commits without a pause",
        hint="try again when it is less busy, or set gtid_mode = ON",
    )
