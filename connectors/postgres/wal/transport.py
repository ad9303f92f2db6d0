"""The bytes of a replication connection: from its socket, or through libpq with TLS."""

import os
import socket
from collections import deque
from struct import Struct
from typing import Any, Protocol

import psycopg
from psycopg import pq

from headwater.connectors.postgres.server.connection import (
    PgConnection,
    in_our_words,
    to_headwater_error,
)
from headwater.connectors.stream_follower import until_readable
from headwater.core_log.foundation.errors import SourceUnavailable

FIRST_FRAMES = b"WENS"
"""First bytes of a server's answer: the stream, an error, a notice, a parameter."""
SMALL_WINDOW_BYTES = 64 << 10
NEARBY_RTT_US = 300
TCP_INFO_BYTES, LEAST_RTT_AT = 152, 148  # on Linux
LOST = "the server ended the replication connection"

_HEAD, _RTT = Struct(">cI"), Struct("=I")


class Transport(Protocol):
    """A connection that returns frames as sent, in parts of any size."""

    name: str
    pause_seconds: float
    """How long data may be left unread in the kernel."""

    async def receive(self, space: memoryview) -> int:
        """Waits for bytes; returns 0 only if `space` is empty."""
        ...

    def take(self, space: memoryview) -> int:
        """Returns the bytes there are, possibly none."""
        ...

    def send(self, message: bytes) -> None: ...

    def close(self) -> None: ...


class SocketTransport:
    """Reads the connection's own socket without libpq, which sees none of it until it closes."""

    name = "socket"

    def __init__(self, connection: PgConnection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._socket.setblocking(False)
        is_local = self._socket.family == socket.AF_UNIX
        self.pause_seconds = LOCAL_PAUSE_SECONDS if is_local else PAUSE_SECONDS
        self._outbox = bytearray()
        self.is_nearby = _is_nearby(self._socket)
        if self.is_nearby:
            # The server sends every message separately. Once our window is full, its kernel joins
            # them, which halves the work of both sides.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW_BYTES)

    async def receive(self, space: memoryview) -> int:
        while True:
            if (count := self.take(space)) or not len(space):
                return count
            await until_readable(self._socket.fileno())

    def take(self, space: memoryview) -> int:
        if not len(space):
            return 0
        try:
            count = self._socket.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise SourceUnavailable(LOST, why=type(error).__name__) from None
        if not count:
            raise SourceUnavailable(LOST)
        return count

    def send(self, message: bytes) -> None:
        self._outbox += _HEAD.pack(b"d", 4 + len(message)) + message
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise SourceUnavailable(LOST, why=type(error).__name__) from None

    def close(self) -> None:
        self._socket.close()


class LibpqTransport:
    """Restores the frame headers that libpq removes; costs a call per message."""

    name = "libpq"

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection.pgconn
        self.pause_seconds = PAUSE_SECONDS
        self._pieces: deque[memoryview] = deque()

    async def receive(self, space: memoryview) -> int:
        while True:
            if (count := self.take(space)) or not len(space):
                return count
            await until_readable(self._connection.socket)

    def take(self, space: memoryview) -> int:
        with in_our_words(LOST):
            self._connection.consume_input()
            count = 0
            while count < len(space) and (self._pieces or self._has_next()):
                piece = self._pieces.popleft()
                part = piece[: len(space) - count]
                space[count : count + len(part)] = part
                count += len(part)
                if len(part) < len(piece):
                    self._pieces.appendleft(piece[len(part) :])
            return count

    def _has_next(self) -> bool:
        length, content = self._connection.get_copy_data(1)
        if length > 0:
            self._pieces += (memoryview(_HEAD.pack(b"d", 4 + length)), content)
            return True
        if length == 0:
            return False
        result = self._connection.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise to_headwater_error(psycopg.errors.error_from_result(result), LOST)
        raise SourceUnavailable(LOST)

    def send(self, message: bytes) -> None:
        with in_our_words(LOST):
            self._connection.put_copy_data(message)
            self._connection.flush()

    def close(self) -> None:
        self._pieces.clear()


async def open_line(connection: PgConnection, command: bytes) -> Transport:
    """Sends the command that starts the stream, and chooses by the first bytes of the answer:
    without encryption they are a frame's, which those of TLS and GSSAPI never are."""
    pgconn = connection.pgconn
    with in_our_words("the server does not start the stream"):
        pgconn.send_query(command)
        pgconn.flush()
    await until_readable(pgconn.socket)
    with socket.socket(fileno=os.dup(pgconn.socket)) as peer:
        try:
            first = peer.recv(1, socket.MSG_PEEK)
        except OSError as error:
            raise SourceUnavailable(LOST, why=type(error).__name__) from None
    if first in [bytes([letter]) for letter in FIRST_FRAMES]:
        return SocketTransport(connection)
    await _start(pgconn)
    return LibpqTransport(connection)


async def _start(pgconn: Any) -> None:
    doing = "the server does not start the stream"
    with in_our_words(doing):
        pgconn.consume_input()
        while pgconn.is_busy():
            await until_readable(pgconn.socket)
            pgconn.consume_input()
        result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_BOTH:
        if result is None:
            raise SourceUnavailable(doing)
        raise to_headwater_error(psycopg.errors.error_from_result(result), doing)


def _is_nearby(peer: socket.socket) -> bool:
    """Whether a small window costs nothing, because the round trip is short."""
    if peer.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_INFO"):
        return False
    state = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    if len(state) < TCP_INFO_BYTES:
        return False
    return bool(_RTT.unpack_from(state, LEAST_RTT_AT)[0] < NEARBY_RTT_US)


PAUSE_SECONDS, LOCAL_PAUSE_SECONDS = 0.005, 0.0005
GATHER_SECONDS = 0.020
BUSY_BYTES_PER_SECOND = 4 << 20


class ReadBatching:
    """Reads a quiet stream at once, and a busy one in large parts.

    The server sends each message separately. A reader that takes each one at once makes it wake up,
    send and sleep for each; a slower reader finds many. The server then needs buffer space, which
    TCP has and a Unix socket hardly has.
    """

    def __init__(self, *, now: float, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._since, self._received, self._is_busy = now, 0, False
        self._gathering_since: float | None = None

    def note_bytes(self, count: int, *, now: float) -> None:
        self._received += count
        elapsed = now - self._since
        if elapsed >= PAUSE_SECONDS:
            self._is_busy = self._received > BUSY_BYTES_PER_SECOND * elapsed
            self._since, self._received = now, 0
        if self._gathering_since is None:
            self._gathering_since = now

    def pause(self, *, now: float) -> float:
        """Returns how long to wait for more; 0 if the present bytes should be decoded."""
        since = now if self._gathering_since is None else self._gathering_since
        return self._pause_seconds if self._is_busy and now - since < GATHER_SECONDS else 0.0

    def handed_on(self) -> None:
        self._gathering_since = None
