"""Rows of a SELECT as blocks of bytes, many at a time, past the driver's own reading of packets."""

import select
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pymysql

from headwater.connectors.mysql.kernels.kernels import (
    PACKET_BYTES_MAX,
    PACKET_HEAD_BYTES,
    SLACK_BYTES,
    MysqlKernels,
    with_slack,
)
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

BLOCK_BYTES = 2 << 20
REST_MS, REST_BYTES = 1, 64 << 10
"""A pause after so few bytes: more then arrive at a time, at less cost for both sides."""
END, ERROR = 0xFE, 0xFF
END_BYTES, ERROR_BYTES_MIN = 5, 3
ROW_BYTES_MAX = (1 << 30) + PACKET_BYTES_MAX


class TextRows(NamedTuple):
    """Rows of the text protocol in a buffer, valid until the next ones are asked for."""

    buffer: UInt8Array
    starts: Int64Array
    stops: Int64Array

    def columns(self, count: int, kernels: MysqlKernels) -> list[pa.BinaryArray]:
        """Returns the cells, column by column."""
        spans = kernels.cells(self.buffer, self.starts, self.stops, count)
        if not spans.is_sound:
            raise DecodeError("a row of a SELECT has another number of cells than columns")
        return list(kernels.gather(self.buffer, spans.bounds, spans.is_null))


def blocks_of(raw: Any, kernels: MysqlKernels) -> Iterator[TextRows]:
    """Yields the rows of a result whose columns the driver has read, to its end."""
    reader, waiting = raw._rfile, select.poll()
    waiting.register(raw._sock.fileno(), select.POLLIN)
    buffer = np.zeros(BLOCK_BYTES + SLACK_BYTES, np.uint8)
    read_before = reader.read1(BLOCK_BYTES)  # the driver reads more than it asks for
    filled = len(read_before)
    buffer[:filled] = np.frombuffer(read_before, np.uint8)
    filled = _top_up(reader.raw, waiting, buffer, filled)
    while True:
        packets = kernels.packets(buffer, filled)
        starts, stops, used = packets
        firsts = buffer[starts]
        ends = np.flatnonzero((firsts == ERROR) | ((firsts == END) & (stops - starts <= END_BYTES)))
        count = int(ends[0]) if len(ends) else len(starts)
        if count:
            yield TextRows(buffer, starts[:count], stops[:count])
        if len(ends):
            if firsts[count] == ERROR:
                said = buffer[starts[count] : stops[count]].tobytes()
                if len(said) < ERROR_BYTES_MIN:
                    raise DecodeError("an error of the server has no number")
                pymysql.err.raise_mysql_exception(said)
            return
        if (long := _long_row(buffer, used, filled)) is not None:
            payload, used = long
            yield TextRows(with_slack([payload]), np.zeros(1, np.int64), np.array([len(payload)]))
        rest = buffer[used:filled].copy()
        if len(rest) + SLACK_BYTES >= len(buffer):
            buffer = np.zeros(2 * len(buffer), np.uint8)
        elif len(buffer) > BLOCK_BYTES + SLACK_BYTES > len(rest) + SLACK_BYTES:
            buffer = np.zeros(BLOCK_BYTES + SLACK_BYTES, np.uint8)  # a very large row is complete
        filled = len(rest)
        buffer[:filled] = rest
        filled += _receive(reader.raw, buffer, filled)
        filled = _top_up(reader.raw, waiting, buffer, filled)


def _receive(socket: Any, buffer: UInt8Array, filled: int) -> int:
    """Waits for bytes; returns how many have come."""
    count = socket.readinto(buffer.data[filled : len(buffer) - SLACK_BYTES])
    if not count:
        raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
    return int(count)


def _top_up(socket: Any, waiting: Any, buffer: UInt8Array, filled: int) -> int:
    """Receives until the buffer is full, the rows may have ended, or nothing is on its way."""
    count = REST_BYTES
    while filled < len(buffer) - SLACK_BYTES:
        if filled >= END_BYTES and buffer[filled - END_BYTES] == END:
            break
        if not waiting.poll(REST_MS if count < REST_BYTES else 0):
            break
        count = _receive(socket, buffer, filled)
        filled += count
    return filled


def _long_row(buffer: UInt8Array, at: int, filled: int) -> tuple[bytes, int] | None:
    """Returns the row that begins there if it lies in several packets, and its end; None if it does
    not, or is not complete."""
    parts = list[bytes]()
    while at + PACKET_HEAD_BYTES <= filled:
        length = int.from_bytes(buffer[at : at + 3].tobytes(), "little")
        begin, at = at + PACKET_HEAD_BYTES, at + PACKET_HEAD_BYTES + length
        if at > filled or (not parts and length < PACKET_BYTES_MAX):
            return None
        if at - begin + sum(map(len, parts)) > ROW_BYTES_MAX:
            raise DecodeError("a row of a SELECT is larger than one gibibyte")
        parts.append(buffer[begin:at].tobytes())
        if length < PACKET_BYTES_MAX:
            return b"".join(parts), at
    return None
