"""One non-blocking TCP connection to a broker: frames out, answers back in request order."""

import asyncio
import errno
import os
import socket
from asyncio import Future
from collections import deque
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import ssl

    from headwater.core_log.links.tls import TlsSocket

INBOX_BYTES = 64 << 10
FRAMES_AT_ONCE = 64
READ_BYTES_MAX = 4 << 20  # per wake-up, so that one connection never starves the others
LENGTH_BYTES, HEAD_BYTES = 4, 8  # a header is length and correlation id

CLOSED = "the broker closed the connection"
"""The reason of a connection that ends without an answer, as one does that has to authenticate."""

_HEAD = Struct(">ii")


class RetriableFailure(Exception):
    """This attempt failed, but a later one may succeed."""

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.reason, self.facts = reason, facts


class ConnectionLost(RetriableFailure):
    """The connection is lost; it is unknown whether the peer executed the requests in flight."""


class ConnectionRefused(ConnectionLost):
    """Nobody listens at the address: the process that did is gone."""


class Channel(Protocol):
    """The functions of a connection that the client uses; an in-process broker may replace it."""

    @property
    def is_open(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def is_in_process(self) -> bool:
        """Whether it leads to a broker of this process, which asks nobody for a proof."""
        ...

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        """Sends one request, whose memory then belongs to the channel; returns the answer without
        its length."""
        ...

    def tell(self, frame: bytearray) -> None:
        """Sends one request without an answer."""
        ...

    def close(self) -> None: ...


class PendingRequest(NamedTuple):
    correlation_id: int
    answer: "Future[memoryview]"


class BrokerConnection:
    """A socket registered with the event loop, without a task, a stream or a copy of a large
    answer.

    Small answers are copied out of one reused buffer. A large one is received into its own memory,
    because readers keep views of the batches in it.
    """

    is_in_process = False

    def __init__(
        self,
        peer: "socket.socket | TlsSocket",
        *,
        response_bytes_max: int,
        held: Callable[[], int] = lambda: 0,
    ) -> None:
        """`held` returns the number of received bytes that the event loop does not see."""
        self._socket, self._held = peer, held
        self._loop = asyncio.get_running_loop()
        self._bytes_max = response_bytes_max
        self._inbox = memoryview(bytearray(INBOX_BYTES))
        self._filled = 0
        self._large: memoryview | None = None  # an answer being received into its own memory
        self._large_filled = 0
        self._outbox: deque[memoryview] = deque()
        self._is_waiting_to_send = False
        self._awaited: deque[PendingRequest] = deque()
        self.is_open = True
        self._loop.add_reader(peer.fileno(), self._on_readable)

    @property
    def in_flight(self) -> int:
        return len(self._awaited)

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        answer: Future[memoryview] = self._loop.create_future()
        if not self.is_open:
            answer.set_exception(ConnectionLost("connection is closed"))
            return answer
        self._awaited.append(PendingRequest(correlation_id, answer))
        self.tell(frame)
        return answer

    def tell(self, frame: bytearray) -> None:
        if not self.is_open:
            return
        if not self._outbox:
            self._loop.call_soon(self._send)
        self._outbox.append(memoryview(frame))

    def close(self, reason: str = "connection is closed") -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._outbox.clear()
        while self._awaited:
            answer = self._awaited.popleft().answer
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
                answer.exception()  # a caller that is gone must not cause a warning

    def _send(self) -> None:
        """Sends all requests of one turn of the loop together, as far as they fit."""
        try:
            while self._outbox and self.is_open:
                self._note_sent(self._socket.sendmsg(list(islice(self._outbox, FRAMES_AT_ONCE))))
        except (BlockingIOError, InterruptedError):
            if not self._is_waiting_to_send:
                self._is_waiting_to_send = True
                self._loop.add_writer(self._socket.fileno(), self._send)
        except OSError as error:
            self.close(f"sending ended: {error.strerror}")
        else:
            if self._is_waiting_to_send and self.is_open:
                self._is_waiting_to_send = False
                self._loop.remove_writer(self._socket.fileno())

    def _note_sent(self, size: int) -> None:
        while size:
            frame = self._outbox[0]
            if size < len(frame):
                self._outbox[0] = frame[size:]
                return
            size -= len(frame)
            self._outbox.popleft()

    def _on_readable(self) -> None:
        taken = 0
        while self.is_open and (taken < READ_BYTES_MAX or self._held()):
            large = self._large
            room = self._inbox[self._filled :] if large is None else large[self._large_filled :]
            try:
                size = self._socket.recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                return self.close(f"receiving ended: {error.strerror}")
            if size == 0:
                return self.close(CLOSED)
            taken += size
            self._accept(size)
            if size < len(room):
                return  # the kernel has no more at the moment

    def _accept(self, size: int) -> None:
        if self._large is not None:
            self._large_filled += size
            if self._large_filled == len(self._large):
                frame, self._large = self._large, None
                self._deliver(frame)
            return
        self._filled += size
        position = 0
        while self.is_open and self._filled - position >= HEAD_BYTES:
            length = _HEAD.unpack_from(self._inbox, position)[0]
            if not HEAD_BYTES - LENGTH_BYTES <= length <= self._bytes_max:
                return self.close(f"an answer claims {length} bytes")
            end = position + LENGTH_BYTES + length
            if end > self._filled:
                if LENGTH_BYTES + length > INBOX_BYTES:
                    return self._begin_large(position, length)
                break
            self._deliver(memoryview(bytes(self._inbox[position:end])))
            position = end
        rest = self._filled - position
        if position and rest:
            self._inbox[:rest] = bytes(self._inbox[position : self._filled])
        self._filled = rest

    def _begin_large(self, position: int, length: int) -> None:
        """Receives the rest of this answer directly into its final memory."""
        self._large = memoryview(bytearray(LENGTH_BYTES + length))
        self._large_filled = self._filled - position
        self._large[: self._large_filled] = self._inbox[position : self._filled]
        self._filled = 0

    def _deliver(self, frame: memoryview) -> None:
        correlation_id = _HEAD.unpack_from(frame)[1]
        if not self._awaited or self._awaited[0].correlation_id != correlation_id:
            return self.close("the broker sent an answer without a request")
        answer = self._awaited.popleft().answer
        if not answer.done():
            answer.set_result(frame[LENGTH_BYTES:])


async def connect(
    host: str, port: int, *, response_bytes_max: int, tls: "ssl.SSLContext | None" = None
) -> BrokerConnection:
    """Tries the addresses of `host` in turn; raises ConnectionLost if none accepts."""
    loop = asyncio.get_running_loop()
    reason, failure = "host has no address", ConnectionLost
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionLost("the host is unknown", host=host) from error
    for family, kind, protocol, _, address in found:
        peer = socket.socket(family, kind, protocol)
        peer.setblocking(False)
        try:
            await loop.sock_connect(peer, address)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is None:
                return BrokerConnection(peer, response_bytes_max=response_bytes_max)
            from headwater.core_log.links.tls import shake_hands

            wrapped = tls.wrap_socket(peer, server_hostname=host, do_handshake_on_connect=False)
            secret = await shake_hands(wrapped, host=host)
            return BrokerConnection(
                secret, response_bytes_max=response_bytes_max, held=secret.pending
            )
        except OSError as error:
            peer.close()
            reason = _why(error)
            is_refused = isinstance(error, ConnectionRefusedError)
            failure = ConnectionRefused if is_refused else ConnectionLost
        except BaseException:
            peer.close()
            raise
    raise failure(reason, host=host, port=port)


def _why(error: OSError) -> str:
    """Returns the error of a failed connection, because the loop replaces the kernel's message."""
    known = error.errno if error.errno in errno.errorcode else None
    return os.strerror(known).lower() if known else error.strerror or type(error).__name__
