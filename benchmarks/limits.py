"""What the machine itself can do, measured in the same run: the yardsticks without a broker."""

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from benchmarks.client_loads import summary
from benchmarks.raw_loads import receive_frame
from benchmarks.wire import LENGTH, batch_of_about, fetch_records_at, produce_error_at

MSG_MORE = socket.MSG_MORE


def touch_memory(directory: Path, megabytes: int) -> None:
    """A virtual machine's memory is slow when it is used for the first time; so it is used here."""
    path = directory / "touched"
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(block)
    path.unlink()


def plain_writes(directory: Path, *, batch_bytes: int, megabytes: int) -> dict[str, float]:
    """The same batch, by os.write, into a growing file."""
    batch = batch_of_about(batch_bytes)
    total = megabytes * 1_000_000 // len(batch)
    path = directory / "plain"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        started = time.perf_counter()
        for _ in range(total):
            os.write(descriptor, batch)
        elapsed = time.perf_counter() - started
    finally:
        os.close(descriptor)
        path.unlink()
    return {"bytes": total * len(batch), "mb_per_second": total * len(batch) / elapsed / 1e6}


def syncs(
    directory: Path, *, batch_bytes: int, batches: int, files: int, seconds: float
) -> dict[str, float]:
    """That many batches, spread over files; one fdatasync per file, in parallel; and again."""
    batch = batch_of_about(batch_bytes)
    delays: list[float] = []
    with ExitStack() as cleaning:
        paths = [directory / f"synced-{index}" for index in range(files)]
        opened = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) for path in paths]
        for descriptor, path in zip(opened, paths, strict=True):
            cleaning.callback(path.unlink)
            cleaning.callback(os.close, descriptor)
        threads = cleaning.enter_context(ThreadPoolExecutor(files))
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            begun = time.perf_counter()
            for index in range(batches):
                os.write(opened[index % files], batch)
            list(threads.map(os.fdatasync, opened))
            delays.append(time.perf_counter() - begun)
        elapsed = time.perf_counter() - started
    written = len(delays) * batches * len(batch)
    return summary(delays, len(delays), leave_out=len(delays) // 10) | {
        "mb_per_second": written / elapsed / 1e6
    }


@contextmanager
def sendfile_server(
    directory: Path, topic: str, *, batch_bytes: int, bytes_max: int, megabytes: int
) -> Iterator[str]:
    """Answers every request with the next stretch of a cached file, and thinks of nothing else."""
    batch = batch_of_about(batch_bytes)
    path = directory / "sent"
    stretch = bytes_max // len(batch) * len(batch)
    with path.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(batch)):
            file.write(batch)
    records_at = fetch_records_at(topic)
    head = LENGTH.pack(records_at + 4 + stretch) + bytes(records_at) + LENGTH.pack(stretch)
    try:
        with in_a_process(SendsFile(path, head, stretch).serve) as address:
            yield address
    finally:
        path.unlink()


class SendsFile:
    """For one connection: the next stretch of the file whenever something is asked."""

    def __init__(self, path: Path, head: bytes, stretch: int) -> None:
        self._file, self._size = path.open("rb"), path.stat().st_size
        self._head, self._stretch, self._position = head, stretch, 0

    def serve(self, peer: socket.socket) -> None:
        if not peer.recv(4096):
            raise ConnectionError("closed")
        peer.send(self._head, MSG_MORE)
        end = self._position + self._stretch
        while self._position < end:
            sent = os.sendfile(
                peer.fileno(), self._file.fileno(), self._position, end - self._position
            )
            self._position += sent
        if end + self._stretch > self._size:
            self._position = 0


@contextmanager
def writing_server(directory: Path, topic: str) -> Iterator[str]:
    """Receives requests, writes each as it came into a growing file, and says that all is well."""
    path = directory / "received"
    try:
        with in_a_process(WritesFile(path, produce_error_at(topic) + 2).serve) as address:
            yield address
    finally:
        path.unlink(missing_ok=True)


class WritesFile:
    """For one connection: the next request, as it came, into the file."""

    def __init__(self, path: Path, answer_bytes: int) -> None:
        self._file = path.open("wb", buffering=0)
        self._answer = LENGTH.pack(answer_bytes) + bytes(answer_bytes)
        self._buffer = memoryview(bytearray(2 << 20))

    def serve(self, peer: socket.socket) -> None:
        size = receive_frame(peer, self._buffer)
        self._file.write(self._buffer[:size])
        peer.sendall(self._answer)


@contextmanager
def in_a_process(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener in a process of its own, as a broker has; one thread serves whoever asks."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    child = os.fork()
    if child == 0:
        _serve_all(listener, serve)
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve_all(listener: socket.socket, serve: Callable[[socket.socket], None]) -> NoReturn:
    peers: dict[int, socket.socket] = {}
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = peer
                poller.register(peer, select.EPOLLIN)
                continue
            try:
                serve(peers[descriptor])
            except OSError:
                poller.unregister(descriptor)
                peers.pop(descriptor).close()
