"""A link to a server on loopback, between two network namespaces, that can go silent as a real one
does: packets vanish, and neither kernel is told."""

import asyncio
import os
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread

from tests.cluster.links import CHUNK, NAMESPACES, enter, run

NEAR, FAR, BITS = "10.213.0.1", "10.213.0.2", 30
OPTIONS = (
    socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT,
)  # fmt: skip
_numbers = count(1)


class SilentLink:
    """`host` and `port` lead to the server, for who is in the near namespace."""

    host = FAR

    def __init__(self, port: int) -> None:
        self.port = port
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        name = f"silent-{os.getpid()}-{next(_numbers)}"
        self._names = {NEAR: f"{name}-near", FAR: f"{name}-far"}
        for each in self._names.values():
            run("ip", "netns", "add", each)
        self._run(NEAR, "link", "add", "end", "address", "02:00:00:00:00:01", "type", "veth",
                  "peer", "name", "end", "address", "02:00:00:00:00:02",
                  "netns", self._names[FAR])  # fmt: skip
        for number, (end, other) in enumerate([(FAR, NEAR), (NEAR, FAR)], start=1):
            self._run(end, "link", "set", "lo", "up")
            self._run(end, "address", "add", f"{end}/{BITS}", "dev", "end")
            self._run(end, "link", "set", "end", "up")
            self._run(end, "neighbour", "add", other, "lladdr", f"02:00:00:00:00:0{number}",
                      "nud", "permanent", "dev", "end")  # fmt: skip
        self._bytes_left: int | None = None
        self.is_silent = Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks = set[asyncio.Task[None]]()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    @property
    def namespace(self) -> str:
        """The near one's name."""
        return self._names[NEAR]

    @contextmanager
    def near(self) -> Iterator[None]:
        """Sockets that this thread opens meanwhile lie at the near end."""
        enter_namespace(self.namespace)
        try:
            yield
        finally:
            enter(self._home)

    def silence(self) -> None:
        self._run(FAR, "address", "del", f"{FAR}/{BITS}", "dev", "end")
        self.is_silent.set()

    def silence_after(self, bytes_sent: int) -> None:
        """By the server, over all of its connections from now on."""
        self._bytes_left = bytes_sent

    def heal(self) -> None:
        self.is_silent.clear()
        self._run(FAR, "address", "add", f"{FAR}/{BITS}", "dev", "end")

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for name in self._names.values():
            run("ip", "netns", "del", name)
        os.close(self._home)

    def _run(self, end: str, *command: str) -> None:
        run("ip", "-n", self._names[end], *command)

    async def _listen(self) -> None:
        enter_namespace(self._names[FAR])
        try:
            listening = socket.socket()
        finally:
            enter(self._home)
        listening.bind((FAR, self.port))
        self._server = await asyncio.start_server(self._carry, sock=listening)

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, is_server=False))
                both.create_task(self._pump(there, writer, is_server=True))
        except* (ConnectionError, TimeoutError, EOFError):
            pass
        finally:
            for each in (writer, back):
                each.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, source: StreamReader, target: StreamWriter, *, is_server: bool) -> None:
        while data := await source.read(CHUNK):
            if is_server and self._bytes_left is not None:
                self._bytes_left -= len(data)
                if self._bytes_left <= 0:
                    self._bytes_left = None
                    self.silence()
            target.write(data)
            await target.drain()
        raise EOFError

    async def _end(self) -> None:
        self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def enter_namespace(name: str) -> None:
    """This thread, and threads that it starts."""
    space = os.open(NAMESPACES / name, os.O_RDONLY)
    try:
        enter(space)
    finally:
        os.close(space)


@contextmanager
def silent_link(port: int) -> Iterator[SilentLink]:
    link = SilentLink(port)
    try:
        yield link
    finally:
        link.close()


def options_of(descriptor: int) -> list[int]:
    """Of a socket: what makes it notice silence."""
    with socket.socket(fileno=os.dup(descriptor)) as looked_at:
        assert looked_at.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        return [looked_at.getsockopt(socket.IPPROTO_TCP, option) for option in OPTIONS]
