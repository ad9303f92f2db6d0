"""Finds where the stream begins, and says why it cannot go on from the stored position."""

import logging
from typing import Any

from headwater.connectors.mysql.position import (
    NOWHERE,
    SERVER,
    XA_FILE,
    XA_STREAM,
    BinlogPosition,
    stored_position,
)
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlServer
from headwater.connectors.mysql.snapshot.chunk_reader import (
    MARIADB_SNAPSHOT,
    binlog_snapshot,
    visible_end,
)
from headwater.core_log.foundation.errors import PositionLost, SourceRejected
from headwater.core_log.model.changes import Positions

logger = logging.getLogger(__name__)

LOST_HINT = (
    "changes have been missed. To read all rows again: write `position_mismatch: resnapshot` into"
    " the source and run again"
)
REQUIRED = {
    "log_bin": ("ON", "log_bin=ON in the server's my.cnf, and a restart"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW'"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL'"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL'"),
}
"""Variables of the server, the values that exactness needs, and what sets them."""
REASONS = {
    "binlog_row_metadata": ": only then does the log name columns and types, without which"
    " histories lack the changes that were made in a former form of a table"
}


def unmet_requirements(connection: MysqlConnection, server: MysqlServer) -> list[tuple[str, str]]:
    """Returns what is wrong with the server's settings, each with its cure."""
    names = ", ".join(f"'{name}'" for name in REQUIRED)
    with in_our_words("the server's settings cannot be read"):
        said = {
            str(name).lower(): str(value).upper()
            for name, value in connection.rows(
                f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
            )
        }
    return [
        (
            f"{name} of the server is {said[name]}, and has to be {wanted}{REASONS.get(name, '')}",
            cure,
        )
        for name, (wanted, cure) in REQUIRED.items()
        if said.get(name, wanted) != wanted and not (name == "log_bin" and said[name] == "1")
    ]


def check_requirements(connection: MysqlConnection, server: MysqlServer) -> None:
    for problem, cure in unmet_requirements(connection, server):
        raise SourceRejected(problem, hint=cure)


def first_position(connection: MysqlConnection, server: MysqlServer) -> BinlogPosition:
    """Returns a position all of which every later SELECT shows."""
    with in_our_words("the position of the server cannot be read"):
        if not server.is_mariadb:
            gtids = server.executed_gtids(connection)
            if gtids is None:
                return BinlogPosition(None, visible_end(connection, server))
            return BinlogPosition(gtids, NOWHERE)
        connection.execute(MARIADB_SNAPSHOT)
        place = binlog_snapshot(connection)
        connection.execute("ROLLBACK")
        text = connection.value(f"SELECT binlog_gtid_pos('{place.file}', {place.position})")
        return BinlogPosition(MariadbGtids.parse(str(text or "")), place)


def check_resumable(
    connection: MysqlConnection, server: MysqlServer, positions: Positions
) -> BinlogPosition | None:
    """Returns the stored position, None before the first; raises `PositionLost`."""
    stored = stored_position(positions, is_mariadb=server.is_mariadb)
    return None if stored is None else _checked(connection, server, stored, positions)


def prepared_position(
    connection: MysqlConnection, server: MysqlServer, positions: Positions
) -> BinlogPosition | None:
    """Returns where the oldest prepared XA transaction begins. None if there is none, or if it is
    purged: once it is committed, all tables are read again."""
    names = (XA_STREAM, XA_FILE)
    stored = stored_position(positions, is_mariadb=server.is_mariadb, names=names)
    if stored is None:
        return None
    try:
        return _checked(connection, server, stored, positions)
    except PositionLost as error:
        logger.warning("rows of prepared XA transactions cannot be read any more: %s", error)
        return None


def _checked(
    connection: MysqlConnection, server: MysqlServer, stored: BinlogPosition, positions: Positions
) -> BinlogPosition:
    is_other = positions.get(SERVER, server.identity) != server.identity
    if stored.gtids is None or not server.has_gtids:
        _check_file(connection, stored, is_other=is_other)
        return BinlogPosition(None, stored.place)
    if isinstance(stored.gtids, GtidSet):
        _check_set(connection, server, stored.gtids, is_other=is_other)
        if not is_other:
            _check_numbers(connection, stored)
    else:
        _check_domains(server.executed_gtids(connection), stored.gtids, is_other=is_other)
        _check_oldest(connection, stored.gtids)
    if is_other:
        stored.place = NOWHERE
    return stored


def _check_file(connection: MysqlConnection, stored: BinlogPosition, *, is_other: bool) -> None:
    """A place in files says nothing about another server."""
    if is_other or not stored.place.file:
        raise PositionLost(
            "the position has no GTIDs, and the server is another one"
            if is_other
            else "the position has only GTIDs, and the server has none any more",
            position=stored.text[:200],
            hint=LOST_HINT,
        )
    sizes = {str(name): int(size) for name, size, *_ in _log_files(connection)}
    if stored.place.file not in sizes:
        raise PositionLost(
            "the server has purged the file of its binary log in which our position is",
            position=str(stored.place),
            oldest=next(iter(sizes), ""),
            hint=LOST_HINT,
        )
    if stored.place.position > sizes[stored.place.file]:
        raise PositionLost(
            "our position is behind the end of its file: the server's binary log was reset",
            position=str(stored.place),
            bytes=sizes[stored.place.file],
            hint=LOST_HINT,
        )


def _check_numbers(connection: MysqlConnection, stored: BinlogPosition) -> None:
    """After a reset the server gives its files and GTIDs the same numbers once more."""
    newest = FilePosition(str(_log_files(connection)[-1][0]), 0)
    is_renamed = base_of(newest.file) != base_of(stored.place.file)
    if not is_renamed and stored.place.order[0] > newest.order[0]:
        raise PositionLost(
            "our position is in a later file than the server has: its binary log was reset",
            position=str(stored.place),
            newest=newest.file,
            hint=LOST_HINT,
        )


def base_of(file: str) -> str:
    """Returns the name without its number."""
    return file.rpartition(".")[0]


def _check_set(
    connection: MysqlConnection, server: MysqlServer, stored: GtidSet, *, is_other: bool
) -> None:
    executed = server.executed_gtids(connection)
    assert isinstance(executed, GtidSet), "MySQL's positions are sets"
    if ahead := stored.without(executed):
        what = "another server, which" if is_other else "the server"
        raise PositionLost(
            f"{what} lacks transactions that were read before",
            missing=str(ahead)[:200],
            hint=LOST_HINT,
        )
    purged = GtidSet.parse(str(connection.value("SELECT @@global.gtid_purged") or ""))
    if lost := purged.without(stored):
        raise PositionLost(
            "the server has purged transactions after our position",
            purged=str(lost)[:200],
            hint=LOST_HINT,
        )


def _log_files(connection: MysqlConnection) -> list[tuple[Any, ...]]:
    with in_our_words("the files of the binary log cannot be listed"):
        return connection.rows("SHOW BINARY LOGS")


def _check_domains(executed: object, stored: MariadbGtids, *, is_other: bool) -> None:
    assert isinstance(executed, MariadbGtids), "MariaDB's positions are numbers of domains"
    missing = [
        f"{domain}-{server}-{number}"
        for domain, server, number in stored
        if not executed.has(domain, number)
    ]
    if missing:
        what = "another server, which" if is_other else "the server"
        raise PositionLost(
            f"{what} lacks transactions that were read before",
            missing=",".join(missing),
            hint=LOST_HINT,
        )


def _check_oldest(connection: MysqlConnection, stored: MariadbGtids) -> None:
    """The oldest log begins behind these transactions."""
    oldest = str(connection.rows("SHOW BINARY LOGS")[0][0])
    text = connection.value(f"SELECT binlog_gtid_pos('{oldest}', 4)")
    purged = MariadbGtids.parse(str(text or ""))
    lost = [
        f"{domain}-{server}-{number}"
        for domain, server, number in purged
        if not stored.has(domain, number)
    ]
    if lost:
        raise PositionLost(
            "the server has purged transactions after our position",
            purged=",".join(lost),
            hint=LOST_HINT,
        )
