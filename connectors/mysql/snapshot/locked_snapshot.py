"""One exact position for the rows of all connections: a lock of a moment, in which they begin."""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pymysql

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import identifier
from headwater.connectors.mysql.server.connection import (
    LOCK_TIMEOUT,
    RIGHTS,
    MysqlConnection,
    code_of,
    in_our_words,
)
from headwater.connectors.mysql.server.server_identity import MysqlServer, MysqlSnapshotPoint
from headwater.connectors.mysql.snapshot.chunk_reader import ISOLATION, MARIADB_SNAPSHOT, SNAPSHOT
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId

LOCK_ALL = "FLUSH TABLES WITH READ LOCK"
WAIT_S_MIN = 1
"""The server counts its wait for a lock in seconds."""


class NotLocked(Exception):
    """The lock was refused, or not granted in time; its cause says why."""

    def __init__(self, error: SourceRejected) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class LockedSnapshot:
    """Open transactions that show the same rows. The lock is no longer held."""

    position: BinlogPosition
    """All that they show is before it, and nothing behind it."""
    at_us: int
    """By the clock of the server."""
    _tables: frozenset[TableId] | None
    """The tables for which that is so; None for all."""
    _idle: list[MysqlConnection]

    @property
    def point(self) -> MysqlSnapshotPoint:
        return MysqlSnapshotPoint(self.position.place, self.at_us)

    def covers(self, table: TableId) -> bool:
        return self._tables is None or table in self._tables

    def take(self) -> MysqlConnection | None:
        """Returns a connection, which its taker closes; None if all are taken."""
        return self._idle.pop() if self._idle else None

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def begin_locked_snapshot(
    connect: Callable[[], MysqlConnection],
    server: MysqlServer,
    tables: Collection[TableId],
    *,
    count: int,
    timeout_ms: int,
) -> LockedSnapshot:
    """Begins `count` transactions while nobody can change the tables. All tables of the server are
    locked if the user may, else the captured ones. Raises `NotLocked`."""
    with ExitStack() as opened:
        readers = []
        for _ in range(count):
            readers.append(connect())
            opened.callback(readers[-1].close)
        with in_our_words("the snapshot cannot be begun"):
            for reader in readers:
                reader.execute(ISOLATION)
            with _locked(connect, tables, timeout_ms) as (connection, covered):
                place, at_us = server.log_end(connection), server.now_us(connection)
                position = BinlogPosition(server.executed_gtids(connection), place)
                for reader in readers:
                    reader.execute(MARIADB_SNAPSHOT if server.is_mariadb else SNAPSHOT)
        opened.pop_all()
    return LockedSnapshot(position, at_us, covered, readers)


@contextmanager
def _locked(
    connect: Callable[[], MysqlConnection], tables: Collection[TableId], timeout_ms: int
) -> Iterator[tuple[MysqlConnection, frozenset[TableId] | None]]:
    """Context manager: the lock ends with its connection."""
    connection = connect()
    try:
        seconds = max(WAIT_S_MIN, math.ceil(timeout_ms / 1_000))
        connection.execute(f"SET SESSION lock_wait_timeout = {seconds}")
        try:
            yield connection, _lock(connection, tables)
        except pymysql.MySQLError as error:
            if (refused := _refusal(error, seconds)) is None:
                raise
            raise NotLocked(refused) from None
    finally:
        connection.close()


def _lock(connection: MysqlConnection, tables: Collection[TableId]) -> frozenset[TableId] | None:
    try:
        connection.execute(LOCK_ALL)
    except pymysql.MySQLError as error:
        if code_of(error)[0] not in RIGHTS or not tables:
            raise
    else:
        return None
    names = [f"{identifier(each.namespace)}.{identifier(each.name)}" for each in sorted(tables)]
    connection.execute(f"LOCK TABLES {', '.join(f'{name} READ' for name in names)}")
    return frozenset(tables)


def _refusal(error: pymysql.MySQLError, seconds: int) -> SourceRejected | None:
    code, said = code_of(error)
    if code == LOCK_TIMEOUT:
        return SourceRejected(
            "the tables were not locked in time: a statement or a transaction holds them",
            seconds=seconds,
            hint="SHOW PROCESSLIST names it; raise `snapshot.lock_timeout`, or write"
            " `snapshot.when_not_locked: continue`",
        )
    if code in RIGHTS:
        return SourceRejected(
            "the user may not lock the tables",
            why=said,
            hint="GRANT RELOAD ON *.* or LOCK TABLES ON database.* TO the user, or write"
            " `snapshot.locking: none`",
        )
    return None
