"""Links between nodes, each in a network namespace: whoever dials a node on loopback reaches it
through a proxy of ours, which can go silent in one direction or both."""

import asyncio
import ctypes
import os
import socket
import subprocess
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

CLIENTS = 0
"""The end of a link at which the tests are."""
CLONE_NEWNET = 0x4000_0000
CHUNK = 1 << 16
NAMESPACES = Path("/run/netns")
libc = ctypes.CDLL(None, use_errno=True)

Way = tuple[int, int]
"""From one end to another, in which bytes pass or do not."""


def can_have_namespaces() -> bool:
    """Only root may, and not in every container."""
    return (
        subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode
        == 0
    )


class Links:
    """One namespace per node, and a proxy for each port of a node in all other namespaces."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)
        self._ready = asyncio.Condition()
        self.cut: set[Way] = set()
        self._tasks = set[asyncio.Task[None]]()
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._spaces: dict[int, int] = {}
        for node in self._nodes:
            run("ip", "netns", "add", self._name(node))
            run("ip", "-n", self._name(node), "link", "set", "lo", "up")
            self._spaces[node] = os.open(NAMESPACES / self._name(node), os.O_RDONLY)

    def _name(self, node: int) -> str:
        return f"cluster-{os.getpid()}-{node}"

    def within(self, node: int) -> Sequence[str]:
        """What stands before a command that runs in the node's namespace."""
        return ["nsenter", f"--net={NAMESPACES / self._name(node)}"]

    def connect(self, ports: Mapping[int, Iterable[int]]) -> None:
        """Opens the ways to all ports of each node, from everywhere else."""
        for node, its_ports in ports.items():
            for end in (CLIENTS, *self._nodes):
                for port in its_ports if end != node else ():
                    listening = self._socket(end)
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listening.bind(("127.0.0.1", port))
                    listening.listen()
                    self._start(self._accept(listening, end, node, port))

    def _socket(self, end: int) -> socket.socket:
        with self._being_in(end):
            made = socket.socket()
        made.setblocking(False)
        return made

    @contextmanager
    def _being_in(self, end: int) -> Iterator[None]:
        """A socket stays for ever in the namespace in which it was made."""
        enter(self._spaces.get(end, self._home))
        try:
            yield
        finally:
            enter(self._home)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket, end: int, node: int, port: int) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                accepted, _ = await loop.sock_accept(listening)
                self._start(self._carry(accepted, end, node, port))

    async def _carry(self, near: socket.socket, end: int, node: int, port: int) -> None:
        loop = asyncio.get_running_loop()
        far = self._socket(node)
        with near, far, suppress(OSError):
            await self._until_passable((end, node))
            await loop.sock_connect(far, ("127.0.0.1", port))
            there = asyncio.ensure_future(self._pump(near, far, (end, node)))
            back = asyncio.ensure_future(self._pump(far, near, (node, end)))
            try:
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (there, back):
                    each.cancel()
                await asyncio.gather(there, back, return_exceptions=True)

    async def _pump(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await loop.sock_recv(source, CHUNK)
            await self._until_passable(way)
            if not data:
                return
            await loop.sock_sendall(target, data)

    async def _until_passable(self, way: Way) -> None:
        if way in self.cut:
            async with self._ready:
                await self._ready.wait_for(lambda: way not in self.cut)

    def ways(self, ends: Iterable[int], *, to: bool, back: bool, clients: bool) -> Set[Way]:
        """Between these ends and all others."""
        found = set[Way]()
        for one in ends:
            for other in {*self._nodes, *([CLIENTS] if clients else [])} - {one}:
                found |= {(one, other)} if back else set()
                found |= {(other, one)} if to else set()
        return found

    async def heal(self) -> None:
        self.cut.clear()
        async with self._ready:
            self._ready.notify_all()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node, space in self._spaces.items():
            os.close(space)
            run("ip", "netns", "del", self._name(node))
        os.close(self._home)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def enter(space: int) -> None:
    """This thread alone."""
    if libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a namespace cannot be entered")
