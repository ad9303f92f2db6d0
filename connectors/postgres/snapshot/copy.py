"""Reads rows from the server by COPY, over the socket or libpq, from its binary format."""

import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import pq

from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.wal.kernels import LENGTH_BYTES, SLACK_BYTES, Kernels, all_values
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError, SourceUnavailable

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
FLAGS_BYTES = 4
TRAILER = b"\xff\xff"
"""In place of a row's number of values: there are no more rows."""
PIECE_BYTES = 2 << 20
LOOK_MS = 200
"""How often a thread that waits for the server checks whether it should stop."""
REST_MS, REST_BYTES = 1, 64 << 10
"""A pause after so few bytes: more then arrive at a time, at less cost for both sides."""

IN_CLEAR = (b"H", b"E", b"N", b"S")
"""First bytes of an answer to COPY; never those of TLS or GSSAPI."""
ROW, ERROR, READY = b"dEZ"
READY_BYTES = (b"Z\0\0\0\5I", b"Z\0\0\0\5T", b"Z\0\0\0\5E")
"""The message of a server that waits for the next statement. If other data ends like this by
chance, it is only returned a little early."""
HEAD_BYTES = 5
LOST = "the server ended the connection while rows were read"

_HEAD = Struct(">cI")


class CopyTuples(NamedTuple):
    """Rows in a buffer, valid until the next ones are requested."""

    buffer: UInt8Array
    starts: Int64Array
    stops: Int64Array

    @property
    def size(self) -> int:
        return int((self.stops - self.starts).sum())


class CopiedRows(NamedTuple):
    columns: tuple[pa.Array, ...]
    """Columns as text or, where requested, as bytes."""
    has_unreadable: bool
    """Whether one of the texts is `UNREADABLE`."""


def tuples_of(buffer: UInt8Array, starts: Int64Array, stops: Int64Array) -> CopyTuples:
    """Returns the rows of messages: one per message, except the last. There is a header before the
    first row, and the last message is or ends with the trailer."""
    first, last = int(starts[0]), int(stops[-1])
    head = _head_bytes(buffer[first : stops[0]].tobytes())
    starts, stops = starts.copy(), stops.copy()
    starts[0] += head
    if stops[-1] - starts[-1] == len(TRAILER) and buffer[last - 2 : last].tobytes() == TRAILER:
        starts, stops = starts[:-1], stops[:-1]
    return CopyTuples(buffer, starts, stops)


def tuples_of_messages(messages: Sequence[bytes | memoryview]) -> CopyTuples:
    """Returns the rows of separate messages."""
    stops = np.cumsum([len(each) for each in messages])
    content = np.frombuffer(b"".join([*messages, bytes(SLACK_BYTES)]), np.uint8)
    return tuples_of(content, np.append(0, stops[:-1]), stops)


def decode_tuples(tuples: CopyTuples, are_texts: Sequence[bool], kernels: Kernels) -> CopiedRows:
    cells = kernels.cells(*tuples, columns=len(are_texts))
    if not cells.is_sound:
        raise DecodeError(
            "a row of COPY has another number of values than columns", columns=len(are_texts)
        )
    if not len(tuples.starts):
        kinds = (pa.string() if is_text else pa.binary() for is_text in are_texts)
        return CopiedRows(tuple(pa.array([], kind) for kind in kinds), False)
    missing = {each: cells.is_null[each] for each in np.flatnonzero(cells.have_nulls).tolist()}
    bare = [place for place, is_text in enumerate(are_texts) if not is_text]
    return CopiedRows(*all_values(kernels, tuples.buffer, cells.bounds, missing, bare))


def _head_bytes(message: bytes) -> int:
    if not message.startswith(SIGNATURE):
        return 0
    at = len(SIGNATURE) + FLAGS_BYTES
    extension = int.from_bytes(message[at : at + LENGTH_BYTES], "big")
    return at + LENGTH_BYTES + extension


def taken_over(descriptor: int, kernels: Kernels) -> "CopySocket | None":
    """Returns the socket once the server has begun to answer a COPY; None if the connection is
    encrypted."""
    taken = socket.socket(fileno=os.dup(descriptor))
    try:
        first = taken.recv(1, socket.MSG_PEEK)
    except OSError as error:
        taken.close()
        raise SourceUnavailable(LOST, why=type(error).__name__) from None
    if first in IN_CLEAR:
        return CopySocket(taken, kernels)
    taken.close()
    return None


class CopySocket:
    def __init__(self, taken: socket.socket, kernels: Kernels) -> None:
        self._socket, self._kernels = taken, kernels
        self._socket.setblocking(False)
        self._waiting, self._resting = select.poll(), select.poll()
        self._waiting.register(taken.fileno(), select.POLLIN)
        self._buffer, self._filled = np.zeros(PIECE_BYTES + SLACK_BYTES, np.uint8), 0

    def send(self, statement: bytes) -> None:
        self._socket.setblocking(True)
        try:
            self._socket.sendall(_HEAD.pack(b"Q", 4 + len(statement) + 1) + statement + b"\0")
        except OSError as error:
            raise SourceUnavailable(LOST, why=type(error).__name__) from None
        self._socket.setblocking(False)

    def pieces(self, is_stopped: Callable[[], bool]) -> Iterator[CopyTuples]:
        """Yields the content of one COPY to its end."""
        failure: bytes | None = None
        while not is_stopped():
            self._receive(is_stopped)
            frames = self._kernels.walk(self._buffer, 0, self._filled)
            if not len(frames.starts):
                self._grow()
                continue
            starts, ends = frames.starts, np.append(frames.starts[1:], frames.stop)
            letters = self._buffer[starts]
            is_row = letters == ROW
            if is_row.any():
                rows = tuples_of(self._buffer, starts[is_row] + HEAD_BYTES, ends[is_row])
                if rows.size:  # the first and last messages of a COPY are not rows
                    yield rows
            for place in np.flatnonzero(letters == ERROR).tolist():
                failure = self._buffer[starts[place] + HEAD_BYTES : ends[place]].tobytes()
            self._drop(frames.stop)
            if letters[-1] == READY:
                break
        if failure is not None:
            raise _error_of(failure)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, is_stopped: Callable[[], bool]) -> None:
        """Receives until the buffer is full, or the COPY has ended."""
        capacity = len(self._buffer) - SLACK_BYTES
        space = self._buffer.data
        while self._filled < capacity and not is_stopped():
            try:
                count = self._socket.recv_into(space[self._filled : capacity])
            except (BlockingIOError, InterruptedError):
                self._waiting.poll(LOOK_MS)
                continue
            except OSError as error:
                raise SourceUnavailable(LOST, why=type(error).__name__) from None
            if not count:
                raise SourceUnavailable(LOST)
            self._filled += count
            if self._buffer[max(0, self._filled - 6) : self._filled].tobytes() in READY_BYTES:
                return
            if count < REST_BYTES:
                self._resting.poll(REST_MS)

    def _drop(self, used: int) -> None:
        rest = self._buffer[used : self._filled].copy()
        if len(self._buffer) > PIECE_BYTES + SLACK_BYTES > len(rest) + SLACK_BYTES:
            # a very large row is complete
            self._buffer = np.zeros(PIECE_BYTES + SLACK_BYTES, np.uint8)
        self._filled = len(rest)
        self._buffer[: self._filled] = rest

    def _grow(self) -> None:
        """Grows the buffer for a row that is larger."""
        if self._filled < len(self._buffer) - SLACK_BYTES:
            return
        larger = np.zeros(2 * len(self._buffer), np.uint8)
        larger[: self._filled] = self._buffer[: self._filled]
        self._buffer = larger


def _error_of(content: bytes) -> psycopg.Error:
    """Returns the class of the server's error; its message is left out, as it may quote a row."""
    fields = {piece[:1]: piece[1:].decode(errors="replace") for piece in content.split(b"\0")}
    try:
        return psycopg.errors.lookup(fields.get(b"C", ""))()
    except KeyError:
        return psycopg.errors.lookup("XX000")()


@dataclass(slots=True)
class CopyStop:
    """Tells a thread to stop."""

    is_wanted: bool = field(default=False)


@dataclass(slots=True)
class Copier:
    """Copies over one exclusive connection in a thread.

    `is_only_for_copies`: libpq, which makes an object of every row, may be bypassed; the connection
    then accepts only such statements.
    """

    connection: PgConnection
    kernels: Kernels
    is_only_for_copies: bool = False
    _socket: CopySocket | None = None
    _is_looked_at: bool = False

    def copy_blocks(self, statement: bytes, stop: CopyStop) -> Iterator[CopyTuples]:
        """Yields blocks. Ends early if it is stopped, and then leaves the connection in the middle
        of a COPY."""
        if self._socket is not None:
            self._socket.send(statement)
            yield from self._socket.pieces(lambda: stop.is_wanted)
            return
        pgconn = self.connection.pgconn
        waiting = select.poll()
        waiting.register(pgconn.socket, select.POLLIN)
        pgconn.send_query(statement)
        while pgconn.flush() and not stop.is_wanted:
            if waiting.poll(LOOK_MS):
                pgconn.consume_input()
        if self.is_only_for_copies and not self._is_looked_at:
            while not stop.is_wanted and not waiting.poll(LOOK_MS):
                pass
            self._is_looked_at = True
            self._socket = None if stop.is_wanted else taken_over(pgconn.socket, self.kernels)
        if self._socket is not None:
            yield from self._socket.pieces(lambda: stop.is_wanted)
        else:
            yield from _by_libpq(pgconn, waiting, stop)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _by_libpq(pgconn: pq.abc.PGconn, waiting: select.poll, stop: CopyStop) -> Iterator[CopyTuples]:
    if _result(pgconn, waiting, stop, expected=pq.ExecStatus.COPY_OUT) is None:
        return
    parts: list[memoryview] = []
    size = 0
    while not stop.is_wanted:
        count, data = pgconn.get_copy_data(1)
        if count > 0:
            parts.append(data)
            size += count
            if size >= PIECE_BYTES:
                yield tuples_of_messages(parts)
                parts, size = [], 0
        elif count == 0:
            if waiting.poll(LOOK_MS):
                pgconn.consume_input()
        else:
            break
    while not stop.is_wanted and _result(pgconn, waiting, stop, expected=pq.ExecStatus.COMMAND_OK):
        pass
    if parts and not stop.is_wanted and (rows := tuples_of_messages(parts)).size:
        yield rows


def _result(
    pgconn: pq.abc.PGconn, waiting: select.poll, stop: CopyStop, *, expected: pq.ExecStatus
) -> pq.abc.PGresult | None:
    while pgconn.is_busy():
        if stop.is_wanted:
            return None
        if waiting.poll(LOOK_MS):
            pgconn.consume_input()
    result = pgconn.get_result()
    if result is not None and result.status != expected:
        error = psycopg.errors.error_from_result(result)
        while pgconn.get_result() is not None:
            pass
        raise error
    return result
