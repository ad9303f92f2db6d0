"""Rows out of the server by COPY, in pieces of whole lines."""

import select
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
from psycopg import pq

from connectors.postgres.connecting import Connection

PIECE_BYTES = 16 << 20
LOOK_MS = 200
"""How often somebody who waits for the server looks whether it is still wanted."""


@dataclass(slots=True)
class Stop:
    """Tells a thread that nobody waits for it any more."""

    is_wanted: bool = field(default=False)


def copied(connection: Connection, statement: bytes, stop: Stop) -> Iterator[bytes]:
    """Blocks; for a thread of its own, while nobody else uses the connection. Ends early when it
    is stopped, and then leaves the connection in the middle of it."""
    pgconn = connection.pgconn
    waiting = select.poll()
    waiting.register(pgconn.socket, select.POLLIN)
    pgconn.send_query(statement)
    while (more := pgconn.flush()) != 0 and not stop.is_wanted:
        assert more == 1, "libpq raises when it cannot send"
        waiting.poll(LOOK_MS)
        pgconn.consume_input()
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
                yield b"".join(parts)
                parts, size = [], 0
        elif count == 0:
            if waiting.poll(LOOK_MS):
                pgconn.consume_input()
        else:
            break
    while not stop.is_wanted and _result(pgconn, waiting, stop, expected=pq.ExecStatus.COMMAND_OK):
        pass
    if parts and not stop.is_wanted:
        yield b"".join(parts)


def _result(
    pgconn: pq.abc.PGconn, waiting: select.poll, stop: Stop, *, expected: pq.ExecStatus
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
