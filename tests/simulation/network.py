"""Connections between simulated processes: slow, cut in one direction, or reset; never out of
order."""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Set
from contextvars import Context
from functools import partial
from random import Random

from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.links.connection import ConnectionLost, ConnectionRefused
from headwater.core_log.storage.files import Bytes
from tests.simulation.virtual_time import Process, VirtualLoop

DELAY_S = (0.0001, 0.002)
SLOW_S, SLOW_SHARE = 0.2, 0.01


class Network:
    """Knows who listens, and which directions are cut."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._listening: dict[tuple[str, int], tuple[BrokerServer, Process]] = {}
        self._silent = set[tuple[str, int]]()
        """Addresses of machines without power, which refuse nobody."""
        self.connections: list[Connection] = []
        self.cut: set[tuple[str, str]] = set()
        """Pairs of sender and receiver, by their names, between which nothing passes."""

    def listen(self, address: tuple[str, int], server: BrokerServer, process: Process) -> None:
        self._listening[address] = (server, process)
        self._silent.discard(address)

    def leave(self, address: tuple[str, int], *, is_silent: bool) -> None:
        """A kernel resets the connections of a process that is gone; a machine without power does
        not."""
        self._listening.pop(address, None)
        if is_silent:
            self._silent.add(address)
        for each in list(self.connections):
            if each.address == address:
                each.lose_server(is_silent=is_silent)

    def dialer(self, client: str) -> Callable[[str, int], "asyncio.Future[Connection]"]:
        async def dial(host: str, port: int) -> Connection:
            await asyncio.sleep(self.delay_s())
            is_cut = (client, host) in self.cut or (host, client) in self.cut
            if is_cut or (host, port) in self._silent:
                await asyncio.sleep(3_600)
            found = self._listening.get((host, port))
            if found is None:
                raise ConnectionRefused("connection refused", host=host, port=port)
            connection = Connection(self, client, (host, port), *found)
            self.connections.append(connection)
            return connection

        return dial  # type: ignore[return-value]

    @property
    def links(self) -> list[tuple[str, str]]:
        """Pairs of a client and the machine that it is connected to."""
        return sorted({(each.client, each.address[0]) for each in self.connections})

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of those who listen."""
        return list(self._listening)

    def forget(self, client: str) -> None:
        """The kernel closes the connections of a client that is gone."""
        for each in list(self.connections):
            if each.client == client:
                each.close("the client is gone")

    def delay_s(self) -> float:
        if self._random.random() < SLOW_SHARE:
            return self._random.uniform(0, SLOW_S)
        return self._random.uniform(*DELAY_S)

    def cut_off(self, ways: Set[tuple[str, str]]) -> None:
        self.cut |= ways

    def restore(self, ways: Set[tuple[str, str]]) -> None:
        self.cut -= ways
        for each in list(self.connections):
            each.on_healed()

    def heal(self) -> None:
        self.restore(set(self.cut))

    def reset(self, random: Random) -> None:
        """Loses some connections, with what is under way on them."""
        for each in list(self.connections):
            if random.random() < 0.7:
                each.close("connection reset by peer")


class _Direction:
    """One direction of a connection: hands over in order what it is given, later."""

    def __init__(self, network: Network, sender: str, receiver: str) -> None:
        self._network, self._way = network, (sender, receiver)
        self._queue: deque[Callable[[], None]] = deque()
        self._due_s = 0.0

    def carry(self, handing_over: Callable[[], None], frame: Bytes = b"") -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "connections are simulated on virtual time"
        loop.trace.note(loop.time(), " to ".join(self._way), frame)
        self._due_s = max(self._due_s, loop.time() + self._network.delay_s())
        self._queue.append(handing_over)
        loop.call_at(self._due_s, self._hand_over, context=Context())

    def _hand_over(self) -> None:
        if self._queue and self._way not in self._network.cut:
            self._queue.popleft()()

    def on_healed(self) -> None:
        while self._queue and self._way not in self._network.cut:
            self._queue.popleft()()

    def clear(self) -> None:
        self._queue.clear()


class Connection:
    """The client's end, which owns the channel at the server's end."""

    is_in_process = False

    def __init__(
        self,
        network: Network,
        client: str,
        address: tuple[str, int],
        server: BrokerServer,
        process: Process,
    ) -> None:
        self._network, self.client, self.address = network, client, address
        self._requests = _Direction(network, client, address[0])
        self._answers = _Direction(network, address[0], client)
        self._context = process.context()
        self._channel = self._context.run(InProcessChannel, server, address)
        self._asked: deque[Future[memoryview]] = deque()
        self._served: deque[Future[memoryview]] = deque()
        self.is_open = True

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        answer: Future[memoryview] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            answer.set_exception(ConnectionLost("connection is closed"))
            return answer
        self._asked.append(answer)
        self._requests.carry(lambda: self._arrive(frame, correlation_id), frame)
        return answer

    def tell(self, frame: bytearray) -> None:
        if self.is_open:
            self._requests.carry(lambda: self._serve(lambda: self._channel.tell(frame)), frame)

    def _arrive(self, frame: bytearray, correlation_id: int) -> None:
        self._serve(lambda: self._receive(frame, correlation_id))

    def _serve(self, work: Callable[[], None]) -> None:
        """In the server's process, which may be paused or gone."""
        asyncio.get_running_loop().call_soon(work, context=self._context)

    def _receive(self, frame: bytearray, correlation_id: int) -> None:
        if self._channel.is_closed:
            return
        served = self._channel.ask(frame, correlation_id)
        self._served.append(served)
        served.add_done_callback(self._on_served)

    def _on_served(self, _: "Future[memoryview]") -> None:
        """Sends answers in the order of the requests."""
        while self._served and self._served[0].done():
            served = self._served.popleft()
            if served.cancelled():
                continue
            error = served.exception()
            if error is None:
                frame = bytes(served.result())
                self._answers.carry(partial(self._deliver, frame), frame)
            elif isinstance(error, HeadwaterError):
                self._answers.carry(lambda: self.close("the broker closed the connection"))
            else:
                raise error

    def _deliver(self, frame: bytes) -> None:
        if self._asked:
            answer = self._asked.popleft()
            if not answer.done():
                answer.set_result(memoryview(frame))

    def on_healed(self) -> None:
        self._requests.on_healed()
        self._answers.on_healed()

    def lose_server(self, *, is_silent: bool) -> None:
        if is_silent:
            self._requests.clear()
            self._answers.clear()
        else:
            self._answers.carry(lambda: self.close("connection reset by peer"))

    def close(self, reason: str = "connection is closed") -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._network.connections.remove(self)
        self._requests.clear()
        self._answers.clear()
        self._serve(self._channel.close)
        while self._asked:
            answer = self._asked.popleft()
            if not answer.done():
                answer.set_exception(ConnectionLost(reason))
                answer.exception()
