"""Streams events from a server: the dump commands, packets, and what their errors mean."""

import asyncio
import select
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.constants import COMMAND

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlServer
from headwater.connectors.stream_follower import until_readable
from headwater.core_log.foundation.errors import (
    DecodeError,
    HeadwaterError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)

COM_BINLOG_DUMP_GTID = 0x1E
NON_BLOCKING = 1
PACKET_BYTES_MAX = 0xFFFFFF
EVENT_BYTES_MAX = 1 << 30
RECEIVE_BYTES = 1 << 20
POSITION_MAX = 2**32 - 1
SILENT_S_MIN = 10.0
SILENT = "the server has stopped sending its binary log"
NOTHING_THERE = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
FATAL_READ, REPLICA_ID_TWICE = 1236, 4052
PURGED = (
    "could not find first log file",
    "purged required binary logs",
    "could not find gtid state",
    "requested to start from gtid",
    "not in the master's binlog",
)
AHEAD = ("more gtids than", "position > file size", "impossible position", "bogus data",
         "in the middle of event", "truncated")  # fmt: skip
CLASH = ("same server_uuid/server_id", "same server_id")
NEWER_HINT = "write `position_mismatch: resnapshot` into the source, which reads all rows again"


@dataclass(frozen=True, slots=True)
class DumpStart:
    """Where the stream begins: at GTIDs, or at a place of this server's files."""

    place: FilePosition | None
    gtids: GtidSet | MariadbGtids | None
    waits: bool = True
    """Whether the server waits for further events; else it ends the stream behind its last one."""


class BinlogTransport:
    """The stream of one connection, whose socket does not block once it has started."""

    def __init__(self, connection: MysqlConnection) -> None:
        self._connection = connection
        self._socket: Any = connection.raw._sock
        self._waiting = select.poll()
        self._waiting.register(self._socket.fileno(), select.POLLIN)
        self._silent_s = SILENT_S_MIN
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._buffer = bytearray()
        self._partial = bytearray()
        """The begin of an event of several packets."""
        self._waits = True
        self.is_dry = False
        """Whether the last `take` has left nothing in the socket."""
        self.has_ended = False
        """The server has sent all of its events, and waits for no others."""

    def start(
        self, server: MysqlServer, start: DumpStart, *, server_id: int, heartbeat_s: float
    ) -> None:
        connection, self._waits = self._connection, start.waits
        nanoseconds = int(heartbeat_s * 1_000_000_000)
        with in_our_words("the binary log cannot be read"):
            connection.execute(
                f"SET @source_binlog_checksum = '{server.checksum}',"
                f" @master_binlog_checksum = '{server.checksum}',"
                f" @source_heartbeat_period = {nanoseconds},"
                f" @master_heartbeat_period = {nanoseconds}"
            )
            if server.is_mariadb:
                connection.execute("SET @mariadb_slave_capability = 4")
            if server.is_mariadb and start.gtids is not None:
                connection.execute(
                    f"SET @slave_connect_state = '{start.gtids}', @slave_gtid_strict_mode = 1,"
                    " @slave_gtid_ignore_duplicates = 0"
                )
            command, data = self._dump(server, start, server_id)
            connection.raw._execute_command(command, data)
        self._socket.setblocking(False)
        self._silent_s = max(3 * heartbeat_s, SILENT_S_MIN)

    def _dump(self, server: MysqlServer, start: DumpStart, server_id: int) -> tuple[int, bytes]:
        if isinstance(start.gtids, GtidSet):
            gtids = start.gtids.encode()
            head = struct.pack("<HII", 0 if start.waits else NON_BLOCKING, server_id, 0)
            return COM_BINLOG_DUMP_GTID, head + struct.pack("<QI", 4, len(gtids)) + gtids
        place = start.place if start.gtids is None else None
        file, position = (place.file, place.position) if place else ("", 4)
        if position > POSITION_MAX:
            raise SourceRejected(
                "the position is beyond 4 GiB of its file, from which only GTIDs can start",
                hint="SET GLOBAL gtid_mode = ON, step by step as MySQL's manual says",
            )
        head = struct.pack("<IHI", position, 0 if start.waits else NON_BLOCKING, server_id)
        return COMMAND.COM_BINLOG_DUMP, head + file.encode()

    def take(self, bytes_max: int) -> list[bytes]:
        """Returns events that are there, at most about so many bytes; possibly none. A failure is
        raised behind the last event before it."""
        events = list[bytes]()
        size = received = 0
        self.is_dry = False
        while True:
            for event in self._events():
                events.append(event)
                size += len(event)
                if size >= bytes_max:
                    return events
            if self.has_ended or received >= bytes_max:
                return events
            try:
                count = self._receive()
            except SourceUnavailable:
                if events:
                    return events  # the next call fails in the same way
                raise
            if not count:
                self.is_dry = True
                return events
            received += count

    async def until_readable(self) -> None:
        """Waits until there is something to take, after a `take` that has left nothing."""
        try:
            async with asyncio.timeout(self._silent_s):
                await until_readable(self._socket.fileno())
        except TimeoutError:
            raise SourceUnavailable(SILENT) from None

    def wait_for_events(self, bytes_max: int) -> list[bytes]:
        """Blocks until there are events, and takes them; none once the stream has ended."""
        while not (events := self.take(bytes_max)) and not self.has_ended:
            if self.is_dry and not self._waiting.poll(self._silent_s * 1_000):
                raise SourceUnavailable(SILENT)
        return events

    def _receive(self) -> int:
        """Returns how many bytes came; 0 if there are none."""
        try:
            count: int = self._socket.recv_into(self._room)
        except NOTHING_THERE:
            return 0
        except (OSError, ValueError) as error:
            raise SourceUnavailable(
                "the connection to the binary log broke", why=f"{type(error).__name__}: {error}"
            ) from None
        if not count:
            raise SourceUnavailable("the server has closed the connection to the binary log")
        self._buffer += self._room[:count]
        return count

    def _events(self) -> Iterator[bytes]:
        buffer, pos = self._buffer, 0
        try:
            while len(buffer) - pos >= 4:
                length = buffer[pos] | buffer[pos + 1] << 8 | buffer[pos + 2] << 16
                begin, end = pos + 4, pos + 4 + length
                if len(buffer) < end:
                    break
                pos = end
                if length < PACKET_BYTES_MAX and not self._partial and length and not buffer[begin]:
                    yield bytes(buffer[begin + 1 : end])
                    continue
                if len(self._partial) + length > EVENT_BYTES_MAX:
                    raise DecodeError("an event of the binary log is larger than one gibibyte")
                self._partial += buffer[begin:end]
                if length == PACKET_BYTES_MAX:
                    continue
                payload = bytes(self._partial)
                self._partial.clear()
                if payload[:1] == b"\0":
                    yield payload[1:]
                else:
                    self._end(payload)
        finally:
            del buffer[:pos]

    def _end(self, payload: bytes) -> None:
        """Raises the error of the server."""
        if payload[:1] == b"\xff":
            reader = ByteReader(payload, 1)
            code = reader.uint(2)
            said = reader.rest().decode(errors="replace")
            raise stream_error(code, said[6:] if said.startswith("#") else said)
        if self._waits:
            raise SourceUnavailable("the server has ended the stream of its binary log")
        self.has_ended = True

    def close(self) -> None:
        self._connection.close()


def stream_error(code: int, said: str) -> HeadwaterError:
    """Returns the error of a dump by its words: nearly all have the same number."""
    words = said.lower()
    if code == REPLICA_ID_TWICE or any(each in words for each in CLASH):
        return SourceRejected(
            "another replica has connected with the same server id",
            hint="give each reader a `server_id` of its own, and stop the other one",
        )
    if code == FATAL_READ and any(each in words for each in PURGED):
        return PositionLost(
            "the server has purged the binary log after our position",
            why=said,
            hint=f"{NEWER_HINT}; keep the log longer with binlog_expire_logs_seconds",
        )
    if code == FATAL_READ and any(each in words for each in AHEAD):
        return PositionLost(
            "our position is ahead of the server, which has lost changes or is another one",
            why=said,
            hint=NEWER_HINT,
        )
    if code in (1227, 1045):
        return SourceRejected(
            "the user may not read the binary log",
            why=said,
            hint="GRANT REPLICATION SLAVE ON *.* TO the user",
        )
    if code == FATAL_READ:
        return SourceRejected(
            "the server cannot send its binary log", why=said, hint="headwater doctor"
        )
    return SourceUnavailable(
        "the server has ended the stream of its binary log", code=code, why=said
    )
