"""Reads rows from the server by COPY in its binary format, many at a time."""

import select
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
from psycopg import pq

from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.snapshot.copy_binary import CopyTuples, tuples_of_messages
from headwater.connectors.postgres.snapshot.copy_socket import PIECE_BYTES, CopySocket, taken_over
from headwater.connectors.postgres.wal.kernels import Kernels

LOOK_MS = 200
"""How often a thread that waits for the server checks whether it should stop."""


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
