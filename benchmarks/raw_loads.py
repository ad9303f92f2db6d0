"""Loads over bare sockets, of batches encoded before: the server is the limit, not the client."""

import json
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.client_loads import summary
from benchmarks.wire import (
    LENGTH,
    FetchFrame,
    batch_of_about,
    connect,
    fetch_records_at,
    produce_error_at,
    produce_request,
    read_exactly,
    read_frame,
    record_count,
)

RECEIVE_BYTES = 4 << 20


def produce_windows(
    address: str, topic: str, *, batch_bytes: int, megabytes: int, window: int, acks: int
) -> dict[str, float]:
    """One connection with several requests in flight."""
    batch = batch_of_about(batch_bytes)
    request = produce_request(topic, 0, batch, acks=acks)
    total = max(window, megabytes * 1_000_000 // len(batch))
    error_at = produce_error_at(topic)
    with connect(address, buffer_bytes=4 << 20) as sock:
        started = time.perf_counter()
        for _ in range(window):
            sock.sendall(request)
        for answered in range(1, total + 1):
            check(read_frame(sock), error_at)
            if answered <= total - window:
                sock.sendall(request)
        elapsed = time.perf_counter() - started
    return rate(total, len(batch), record_count(batch), elapsed)


def produce_in_step(
    address: str,
    topic: str,
    *,
    batch_bytes: int,
    connections: int,
    partitions: int,
    seconds: float,
    acks: int,
) -> dict[str, float]:
    """Many connections, each of which sends its next batch when the last one is acknowledged."""
    batch = batch_of_about(batch_bytes)
    requests = [produce_request(topic, each, batch, acks=acks) for each in range(partitions)]
    error_at = produce_error_at(topic)
    opened = [connect(address, buffer_bytes=1 << 20) for _ in range(connections)]
    wanted = {sock: requests[index % partitions] for index, sock in enumerate(opened)}
    delays: list[float] = []
    with ready_sockets(opened) as ready:
        started = time.perf_counter()
        sent_at: dict[socket.socket, float] = {}
        for sock, request in wanted.items():
            sent_at[sock] = time.perf_counter()
            sock.sendall(request)
        while sent_at:
            for sock in ready():
                check(read_frame(sock), error_at)
                now = time.perf_counter()
                delays.append(now - sent_at.pop(sock))
                if now - started < seconds:
                    sent_at[sock] = time.perf_counter()
                    sock.sendall(wanted[sock])
        elapsed = time.perf_counter() - started
    percentiles = summary(delays, len(delays), leave_out=len(delays) // 10)
    return percentiles | rate(len(delays), len(batch), record_count(batch), elapsed)


def fetch(
    address: str, topic: str, *, batch_bytes: int, bytes_max: int, connections: int, megabytes: int
) -> dict[str, float]:
    """Reads equal batches from the start, over and over, one request in flight per connection."""
    batch = batch_of_about(batch_bytes)
    per_batch, records_at = record_count(batch), fetch_records_at(topic)
    frame = FetchFrame(topic, 0, bytes_max=bytes_max)
    opened = [connect(address) for _ in range(connections)]
    offsets = dict.fromkeys(opened, 0)
    for sock in opened:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    buffer = memoryview(bytearray(bytes_max + (1 << 20)))
    with ready_sockets(opened) as ready:
        received, started = 0, time.perf_counter()
        for sock in opened:
            sock.sendall(frame.at(0))
        while received < megabytes * 1_000_000:
            for sock in ready():
                size = receive_frame(sock, buffer)
                (records_bytes,) = LENGTH.unpack_from(buffer, records_at)
                assert records_bytes == size - records_at - 4, "records end the answer"
                if not records_bytes and not offsets[sock]:
                    raise RuntimeError(f"nothing was answered: {bytes(buffer[:size]).hex()}")
                received += records_bytes
                whole = records_bytes // len(batch)
                offsets[sock] = offsets[sock] + whole * per_batch if whole else 0
                sock.sendall(frame.at(offsets[sock]))
        elapsed = time.perf_counter() - started
    return {"bytes": received, "seconds": elapsed, "mb_per_second": received / elapsed / 1e6}


@contextmanager
def ready_sockets(opened: list[socket.socket]) -> Iterator[Callable[[], list[socket.socket]]]:
    """A function that waits for those on which something can be read; closes all at the end."""
    by_descriptor = {sock.fileno(): sock for sock in opened}
    with select.epoll() as poller:
        for descriptor in by_descriptor:
            poller.register(descriptor, select.EPOLLIN)
        try:
            yield lambda: [by_descriptor[each] for each, _ in poller.poll(30)]
        finally:
            for sock in opened:
                sock.close()


def receive_frame(sock: socket.socket, buffer: memoryview) -> int:
    """Reads one answer into the buffer; returns its size without the length before it."""
    (size,) = LENGTH.unpack(read_exactly(sock, 4))
    position = 0
    while position < size:
        received = sock.recv_into(buffer[position:size])
        if not received:
            raise ConnectionError("the server closed the connection")
        position += received
    return int(size)


def round_trips(address: str, topic: str, *, count: int) -> dict[str, float]:
    """One small batch after the other on one connection, acks=1: what a request costs."""
    request = produce_request(topic, 0, batch_of_about(200), acks=1)
    error_at = produce_error_at(topic)
    delays: list[float] = []
    with connect(address) as sock:
        for _ in range(count):
            sent = time.perf_counter()
            sock.sendall(request)
            check(read_frame(sock), error_at)
            delays.append(time.perf_counter() - sent)
    return summary(delays, count, leave_out=count // 10)


def check(answer: bytearray, error_at: int) -> None:
    if answer[error_at : error_at + 2] != b"\x00\x00":
        raise RuntimeError(f"the batch was refused: {bytes(answer).hex()}")


def rate(batches: int, batch_bytes: int, records: int, elapsed: float) -> dict[str, float]:
    return {
        "count": batches * records,
        "bytes": batches * batch_bytes,
        "seconds": elapsed,
        "mb_per_second": batches * batch_bytes / elapsed / 1e6,
        "requests_per_second": batches / elapsed,
    }


LOADS: dict[str, Callable[..., Any]] = {
    load.__name__: load for load in (produce_windows, produce_in_step, fetch, round_trips)
}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(LOADS[name](**arguments)))


if __name__ == "__main__":
    main()
