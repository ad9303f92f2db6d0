"""One client's connection: frames in, in order; answers out, in the same order."""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from headwater.core_log.broker.request_room import RequestRoom
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.security.login import REQUEST_BYTES_MAX, Login, LoginSession
from headwater.core_log.security.principal import ANONYMOUS, Principal
from headwater.core_log.storage.files import FileRange

if TYPE_CHECKING:
    from headwater.core_log.links.tls import TlsSocket

logger = logging.getLogger(__name__)

ResponsePart = bytes | FileRange
"""A part of an answer: our bytes, or a range of a segment file that the kernel sends."""

_LENGTH = Struct(">i")
SMALLEST_FRAME_BYTES = 8  # API key, version, correlation id
FIRST_BUFFER_BYTES = 8 << 10
KEPT_BUFFER_BYTES = 4 << 20
ANSWERS_WAITING_MAX = 128
SENDFILE_BYTES_MAX = 1 << 20
TLS_BYTES_MAX = 1 << 18
STALLED_S = 30.0
"""A client that sends nothing of an unfinished request for so long gives way to others of its
principal that wait for memory."""
TLS_HANDSHAKE = 0x16  # the first byte of a client that begins TLS


class Recipient(Protocol):
    """The receiver of a reply."""

    @property
    def is_closed(self) -> bool: ...
    def on_fulfilled(self, reply: "Reply") -> None: ...


class Reply:
    """An answer's place in its connection's queue; `fulfil` may be called later, by any code."""

    __slots__ = ("_recipient", "blocks", "chunks")

    def __init__(
        self, chunks: Sequence[ResponsePart] | None = None, *, blocks: bool = False
    ) -> None:
        self.chunks: Sequence[ResponsePart] | None = chunks
        self.blocks = blocks  # whether the connection's next request waits for this answer
        self._recipient: Recipient | None = None

    def fulfil(self, chunks: Sequence[ResponsePart]) -> None:
        """Sets the bytes; None means "no answer"."""
        assert self.chunks is None, "a reply is fulfilled once"
        self.chunks = chunks
        if self._recipient is not None:
            self._recipient.on_fulfilled(self)

    def attach(self, recipient: Recipient) -> None:
        self._recipient = recipient

    @property
    def is_abandoned(self) -> bool:
        """Whether the reader of the answer is gone."""
        return self._recipient is not None and self._recipient.is_closed


Answer = bytes | Reply | None


class Peer(Protocol):
    """A client, with any kind of connection."""

    client_host: str
    listener_host: str
    listener_port: int
    is_closed: bool
    principal: Principal
    """On whose behalf its requests are made."""
    login: Login | None
    """How far it is with its authentication; None once it is known, or need not be."""
    session: LoginSession | None
    """When it must authenticate again; None if it need not."""

    def admit(self, principal: Principal, session: LoginSession | None = None) -> None:
        """Ends its authentication."""
        ...

    def mute(self, wait_ms: int) -> None:
        """Takes no further request for so long."""
        ...

    def close_when_sent(self) -> None: ...
    def close(self) -> None: ...


class FrameHandler(Protocol):
    """The function that a connection calls with its frames."""

    request_bytes_max: int

    def room_of(self, principal: Principal) -> RequestRoom | None:
        """Returns the memory for requests of the principal; None without a limit."""
        ...

    def answer(self, frame: memoryview, peer: Peer) -> Answer | Awaitable[Answer]: ...
    def on_closed(self, peer: Peer) -> None: ...


class ClientConnection:
    """Owns one non-blocking socket. Requests run one after another, as in Kafka. A Produce that
    waits for the disk does not block the next frame, so that a pipelining producer shares one
    sync."""

    def __init__(
        self,
        peer: "socket.socket | TlsSocket",
        loop: asyncio.AbstractEventLoop,
        handler: FrameHandler,
        *,
        principal: Principal = ANONYMOUS,
        login: Login | None = None,
    ) -> None:
        self.socket, self._loop, self._handler = peer, loop, handler
        self.fileno = peer.fileno()
        self.client_host, self.client_port = peer.getpeername()[:2]
        self.listener_host, self.listener_port = peer.getsockname()[:2]
        self.principal, self.login = principal, login
        self.session: LoginSession | None = None
        self.is_closed = False
        self._room = None if login is not None else handler.room_of(principal)
        self._room_bytes = 0  # of it, beyond the first buffer
        self._received_s = 0.0
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._parsed = self._filled = 0
        self._answers: deque[Reply] = deque()
        self._ready: deque[ResponsePart] = deque()  # chunks being written, the first perhaps partly
        self._sent = 0  # bytes of the first ready chunk already written
        self._is_blocked = self._is_full = self._is_parsing = False
        self._is_reading = self._is_writing = False
        self._closes_when_sent = self._is_ended = False
        self._mute_end: asyncio.TimerHandle | None = None
        self._held: Callable[[], int] | None = getattr(peer, "pending", None)
        """TLS only: the number of bytes that are received, and that the loop does not see."""
        self._read_on()

    def _read_on(self) -> None:
        if not (self._is_reading or self._is_ended or self.is_closed):
            self._is_reading = True
            self._loop.add_reader(self.fileno, self._on_readable)
            if self._held is not None and self._held():
                self._loop.call_soon(self._on_readable)

    def _read_no_more(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.fileno)

    def _on_readable(self) -> None:
        if self._held is None:
            self._receive()
            return
        while self._is_reading:
            self._receive()
            if not self._is_reading or not self._held():
                return

    def _receive(self) -> None:
        if self._filled == len(self._buffer) and not self._make_room():
            self._read_no_more()  # if the buffer is full, reading waits for the current request
            return
        try:
            count = self.socket.recv_into(self._view[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self._on_end()
            return
        self._filled += count
        if self._room_bytes:
            self._received_s = self._loop.time()
        self._parse()

    def _on_end(self) -> None:
        """The client sends nothing more, but may still read: its requests are answered first."""
        self._is_ended = True
        self._read_no_more()
        self._flush()

    def _make_room(self) -> bool:
        """Moves the unparsed rest to the front, or doubles the buffer for a larger frame.

        Doubling as bytes arrive means that announcing a large frame costs us nothing.
        """
        rest = self._filled - self._parsed
        if self._parsed > 0:
            self._buffer[:rest] = self._buffer[self._parsed : self._filled]
        else:
            needed = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            size = 1 << (needed - 1).bit_length()
            if needed <= len(self._buffer) or not self._has_room_for(size):
                return False
            fresh = bytearray(min(2 * len(self._buffer), size))
            fresh[:rest] = self._buffer
            self._buffer, self._view = fresh, memoryview(fresh)
        self._parsed, self._filled = 0, rest
        return True

    def _has_room_for(self, size: int) -> bool:
        """Returns whether the buffer may grow to this size now; else `on_room` follows."""
        missing = size - FIRST_BUFFER_BYTES - self._room_bytes
        if self._room is None or missing <= 0:
            return True
        self._room.ask(self, missing)
        return size - FIRST_BUFFER_BYTES <= self._room_bytes

    def on_room(self, count: int) -> None:
        self._room_bytes += count
        self._received_s = self._loop.time()
        self._read_on()

    def give_back_unused(self) -> None:
        if self._room_bytes and self._parsed == self._filled and not self._is_blocked:
            self._shrink()

    def close_if_stalled(self) -> None:
        is_late = self._loop.time() - self._received_s > STALLED_S
        is_unfinished = self._parsed < self._filled and self._takes_requests()
        if is_late and is_unfinished and self._is_reading:
            self._refuse("the rest of a request has not come, and others wait for its memory")

    def _shrink(self) -> None:
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._parsed = self._filled = 0
        if self._room is not None:
            count, self._room_bytes = self._room_bytes, 0
            self._room.give(self, count)

    def _parse(self) -> None:
        """Answers every whole frame in the buffer, until a request must be waited for."""
        if self._is_parsing:
            return
        self._is_parsing = True
        while self._takes_requests() and (size := self._next_frame_bytes()):
            start = self._parsed + _LENGTH.size
            self._parsed = start + size
            self._answer(self._view[start : start + size])
        self._is_parsing = False
        if self._parsed == self._filled:
            self._parsed = self._filled = 0
            is_wanted = self._room is not None and self._room.waiting_count > 0
            is_large = len(self._buffer) > (FIRST_BUFFER_BYTES if is_wanted else KEPT_BUFFER_BYTES)
            if is_large and not self._is_blocked:
                self._shrink()
        self._flush()

    def _takes_requests(self) -> bool:
        waiting = len(self._answers) + len(self._ready)
        self._is_full = waiting >= ANSWERS_WAITING_MAX
        if self._is_blocked or self._mute_end is not None:
            return False
        return not (self._is_full or self.is_closed or self._closes_when_sent)

    def _next_frame_bytes(self) -> int:
        """Returns the size of the frame at the parse position; 0 if it is incomplete or refused."""
        rest = self._filled - self._parsed
        if rest < _LENGTH.size:
            return 0
        size: int = _LENGTH.unpack_from(self._buffer, self._parsed)[0]
        limit = self._handler.request_bytes_max if self.login is None else REQUEST_BYTES_MAX
        if not SMALLEST_FRAME_BYTES <= size <= limit:
            begins_tls = size >> 24 == TLS_HANDSHAKE and self._held is None
            self._refuse(
                "the client begins TLS, and the listener has none"
                if begins_tls
                else f"a frame of {size} bytes is not served"
            )
            return 0
        return size if rest >= _LENGTH.size + size else 0

    def _answer(self, frame: memoryview) -> None:
        try:
            answer = self._handler.answer(frame, self)
        except HeadwaterError as error:
            self._refuse(str(error))
            return
        except Exception:
            logger.exception("a request failed unexpectedly")
            self.close()
            return
        if answer is None:
            return
        if isinstance(answer, bytes):
            self._answers.append(Reply((answer,)))
        elif isinstance(answer, Reply):
            self._enqueue(answer)
        else:
            place = Reply(blocks=True)
            self._enqueue(place)
            task = asyncio.ensure_future(answer)
            task.add_done_callback(lambda done: self._on_answered(done, place))

    def _enqueue(self, reply: Reply) -> None:
        reply.attach(self)
        self._answers.append(reply)
        if reply.chunks is None and reply.blocks:
            self._is_blocked = True

    def _on_answered(self, task: "asyncio.Future[Answer]", place: Reply) -> None:
        """Stores the answer of a finished coroutine in its place."""
        if self.is_closed or task.cancelled():
            return
        if (error := task.exception()) is not None:
            if isinstance(error, HeadwaterError):
                self._refuse(str(error))
            else:
                logger.error("a request failed unexpectedly", exc_info=error)
                self.close()
            return
        answer = task.result()
        if answer is None:
            place.fulfil(())
        elif isinstance(answer, bytes):
            place.fulfil((answer,))
        elif answer.chunks is not None:
            place.fulfil(answer.chunks)
        else:  # appended, but not on disk yet: the next request need not wait for that
            answer.attach(self)
            self._answers[self._answers.index(place)] = answer
            self._unblock()

    def on_fulfilled(self, reply: Reply) -> None:
        if self.is_closed:
            return
        if reply.blocks:
            self._unblock()
        elif not self._is_parsing:
            self._flush()

    def _unblock(self) -> None:
        self._is_blocked = False
        self._go_on()

    def _go_on(self) -> None:
        self._parse()
        self._read_on()

    def _flush(self) -> None:
        """Writes ready answers from the head of the queue, as far as the socket accepts them."""
        answers = self._answers
        while answers and answers[0].chunks is not None:
            self._ready.extend(answers.popleft().chunks or ())
        if self._ready and not self._is_writing:
            self._write()
        if self._is_full and self._takes_requests():
            self._loop.call_soon(self._go_on)
        if self._is_finished:
            self.close()

    @property
    def _is_finished(self) -> bool:
        """Whether everything is answered, and nothing more will be requested or accepted."""
        if self._answers or self._ready:
            return False
        return self._closes_when_sent or (self._is_ended and not self._holds_frame)

    @property
    def _holds_frame(self) -> bool:
        rest = self._filled - self._parsed - _LENGTH.size
        return rest >= 0 and rest >= _LENGTH.unpack_from(self._buffer, self._parsed)[0]

    def _write(self) -> None:
        try:
            while self._ready:
                chunk = self._ready[0]
                sent = self._send_bytes() if isinstance(chunk, bytes) else self._send_file(chunk)
                if not sent:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if self._ready and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self.fileno, self._on_writable)

    def _on_writable(self) -> None:
        self._write()
        if not self._ready and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self.fileno)
            self._flush()

    def _send_bytes(self) -> bool:
        """Sends the bytes at the head up to the next file in one call."""
        buffers: list[bytes] = []
        for chunk in self._ready:
            if not isinstance(chunk, bytes):
                break
            buffers.append(chunk)
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        more = socket.MSG_MORE if len(buffers) < len(self._ready) else 0
        rest = memoryview(data)[self._sent :]
        self._sent += self.socket.send(rest, more)
        if self._sent < len(data):
            return False
        for _ in buffers:
            self._ready.popleft()
        self._sent = 0
        return True

    def _send_file(self, file_range: FileRange) -> bool:
        count = min(file_range.size - self._sent, SENDFILE_BYTES_MAX)
        position = file_range.position + self._sent
        if self._held is None:
            sent = os.sendfile(self.fileno, file_range.file.fileno(), position, count)
        else:  # the kernel cannot encrypt it
            data = file_range.file.read(position, min(count, TLS_BYTES_MAX))
            sent = self.socket.send(data) if data else 0
        if sent == 0:
            raise OSError("segment file is shorter than the range promised from it")
        self._sent += sent
        if self._sent == file_range.size:
            self._ready.popleft()
            self._sent = 0
        return True

    def _refuse(self, why: str) -> None:
        logger.warning(
            "closed the connection of %s:%d: %s", self.client_host, self.client_port, why
        )
        self._flush()  # an earlier answer, which is valid
        self.close()

    def admit(self, principal: Principal, session: LoginSession | None = None) -> None:
        self.principal, self.login, self.session = principal, None, session
        if self._room is None:
            self._room = self._handler.room_of(principal)

    def mute(self, wait_ms: int) -> None:
        if self.is_closed:
            return
        end_s = self._loop.time() + wait_ms / 1_000
        if self._mute_end is not None:
            end_s = max(end_s, self._mute_end.when())
            self._mute_end.cancel()
        self._mute_end = self._loop.call_at(end_s, self._unmute)

    def _unmute(self) -> None:
        self._mute_end = None
        self._go_on()

    def close_when_sent(self) -> None:
        """Accepts no further request, and closes once all requests are answered."""
        self._closes_when_sent = True
        if self._is_finished:
            self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._mute_end is not None:
            self._mute_end.cancel()
            self._mute_end = None
        self._read_no_more()
        if self._is_writing:
            self._loop.remove_writer(self.fileno)
        self._answers.clear()
        self._ready.clear()
        if self._room is not None:
            self._room_bytes = 0
            self._room.leave(self)
        self.socket.close()
        self._handler.on_closed(self)
