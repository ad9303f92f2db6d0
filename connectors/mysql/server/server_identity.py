"""The server behind a connection: its kind, its version, and where its binary log ends."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.core_log.foundation.errors import SourceRejected

RENAMED_SINCE = (8, 4)
"""SHOW MASTER STATUS became SHOW BINARY LOG STATUS in MySQL."""
OLDEST = {False: (8, 0), True: (10, 5)}
NUMBER = re.compile(r"\.(\d+)$")
NOW = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
SECOND_US = 1_000_000


class FilePosition(NamedTuple):
    """A place in the binary log of one server."""

    file: str
    position: int

    @property
    def order(self) -> tuple[int, int]:
        """Returns the place as numbers, which grow."""
        found = NUMBER.search(self.file)
        return (int(found[1]) if found else 0, self.position)

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @classmethod
    def parse(cls, text: str) -> "FilePosition":
        file, _, position = text.rpartition(":")
        return cls(file, int(position))


class MysqlSnapshotPoint(NamedTuple):
    """The place and the time of a snapshot."""

    place: FilePosition
    """Everything that the snapshot shows is before it."""
    at_us: int
    """By the clock of the server, so that it fits the times of commits: no later than any commit
    that the snapshot does not show."""


@dataclass(frozen=True, slots=True)
class MysqlServer:
    """Facts that do not change while the server runs."""

    version: str
    numbers: tuple[int, ...]
    is_mariadb: bool
    identity: str
    """The server's uuid; MariaDB has only its server id."""
    has_gtids: bool
    checksum: str
    folds_names: bool = False
    """Whether names of tables are the same in any letter case (`lower_case_table_names`)."""

    @property
    def name(self) -> str:
        return "mariadb" if self.is_mariadb else "mysql"

    def executed_gtids(self, connection: MysqlConnection) -> GtidSet | MariadbGtids | None:
        """Returns the transactions that are committed and visible."""
        if self.is_mariadb:
            return MariadbGtids.parse(connection.value("SELECT @@global.gtid_binlog_pos") or "")
        if not self.has_gtids:
            return None
        return GtidSet.parse(connection.value("SELECT @@global.gtid_executed") or "")

    def now_us(self, connection: MysqlConnection) -> int:
        """Returns the server's time as its log has times: in whole seconds in MariaDB."""
        with in_our_words("the server cannot be asked for its time"):
            now_us = int(connection.value(NOW))
        return now_us - now_us % SECOND_US if self.is_mariadb else now_us

    def log_end(self, connection: MysqlConnection) -> FilePosition:
        """Returns the end of the binary log, behind every transaction that a SELECT can see."""
        is_renamed = not self.is_mariadb and self.numbers >= RENAMED_SINCE
        with in_our_words("the server cannot be asked where its binary log ends"):
            rows = connection.rows(f"SHOW {'BINARY LOG' if is_renamed else 'MASTER'} STATUS")
        if not rows:
            raise SourceRejected(
                "the server writes no binary log", hint="start it with log_bin=ON in its my.cnf"
            )
        return FilePosition(str(rows[0][0]), int(rows[0][1]))


def identify(connection: MysqlConnection) -> MysqlServer:
    with in_our_words("the server cannot be asked what it is"):
        version = str(connection.value("SELECT VERSION()"))
        is_mariadb = "mariadb" in version.lower()
        numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:3])
        if numbers[:2] < OLDEST[is_mariadb]:
            raise SourceRejected(
                "the server is older than the oldest version that is supported",
                version=version,
                hint="use MySQL 8.0 or newer, or MariaDB 10.5 or newer",
            )
        checksum = str(connection.value("SELECT @@global.binlog_checksum"))
        folds_names = int(connection.value("SELECT @@global.lower_case_table_names")) != 0
        if is_mariadb:
            identity = f"mariadb:{connection.value('SELECT @@global.server_id')}"
            return MysqlServer(version, numbers, True, identity, True, checksum, folds_names)
        uuid, mode = connection.rows("SELECT @@global.server_uuid, @@global.gtid_mode")[0]
        return MysqlServer(version, numbers, False, str(uuid), mode == "ON", checksum, folds_names)
