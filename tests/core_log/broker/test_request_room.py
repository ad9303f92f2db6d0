"""Large requests of one principal share its memory: what finds no room waits unread, and nothing
waits for ever."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.broker import connection as connections
from headwater.core_log.broker.connection import ClientConnection, Peer
from headwater.core_log.broker.request_room import RequestRoom
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.security.principal import Principal
from tests.builders import batch
from tests.core_log.broker.test_authentication import (
    PASSWORD,
    SASL,
    Start,
    add_alice,
    until,
    user,
)
from tests.core_log.broker.test_authentication import client as client_of
from tests.core_log.broker.test_authentication import start as start

LIMIT = 1 << 20
REQUEST = struct.pack(">i", 600_000) + bytes(600_000)
HALF = len(REQUEST) // 2


class Served:
    """Answers each request with one byte; each principal has its own memory."""

    request_bytes_max = 64 << 20

    def __init__(self) -> None:
        self.rooms: dict[Principal, RequestRoom] = {}
        self.looks: list[Callable[[], None]] = []
        self.connections: list[ClientConnection] = []

    def room_of(self, principal: Principal) -> RequestRoom:
        room = RequestRoom(LIMIT, look_later=self.looks.append)
        return self.rooms.setdefault(principal, room)

    def answer(self, frame: memoryview, peer: Peer) -> bytes:
        return b"."

    def on_closed(self, peer: Peer) -> None: ...

    async def connect(self, user: str) -> "Client":
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        for each in (near, far):
            each.setblocking(False)
        opened = ClientConnection(far, loop, self, principal=Principal(user))
        self.connections.append(opened)
        return Client(near, opened)


class Client:
    def __init__(self, near: socket.socket, opened: ClientConnection) -> None:
        self._socket, self.opened = near, opened

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def answer(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._socket, 1)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    yield served
    for each in served.connections:
        each.close()


async def test_a_request_without_room_waits_for_another_of_its_principal_alone(
    served: Served,
) -> None:
    first, second = await served.connect("alice"), await served.connect("alice")
    other = await served.connect("bob")
    room = served.rooms[Principal("alice")]
    await first.send(REQUEST[:HALF])
    await until(lambda: room.used > 0)

    waiting = asyncio.ensure_future(second.send(REQUEST))
    await until(lambda: room.waiting_count == 1)
    await other.send(REQUEST)
    assert await other.answer() == b"."
    held = room.used
    await first.send(REQUEST[HALF:])

    assert held <= LIMIT
    assert await first.answer() == await second.answer() == b"."
    await waiting
    for each in (first, second, other):
        each.close()


async def test_a_client_that_goes_leaves_its_room_to_others(served: Served) -> None:
    first, second = await served.connect("alice"), await served.connect("alice")
    room = served.rooms[Principal("alice")]
    await first.send(REQUEST[:HALF])
    await until(lambda: room.used > 0)
    waiting = asyncio.ensure_future(second.send(REQUEST))
    await until(lambda: room.waiting_count == 1)

    first.close()

    assert await second.answer() == b"."
    await waiting
    second.close()
    await until(lambda: room.used == 0)


async def test_memory_kept_for_a_next_request_is_given_to_another(served: Served) -> None:
    first, second = await served.connect("alice"), await served.connect("alice")
    for each in (first, second, first):
        await each.send(REQUEST)
        assert await each.answer() == b"."

    assert served.rooms[Principal("alice")].used <= LIMIT
    first.close()
    second.close()


async def test_a_client_that_stalls_gives_way(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await served.connect("alice"), await served.connect("alice")
    room = served.rooms[Principal("alice")]
    await first.send(REQUEST[:HALF])
    await until(lambda: room.used > 0)
    waiting = asyncio.ensure_future(second.send(REQUEST))
    await until(lambda: bool(served.looks))

    served.looks.pop()()
    lives = not first.opened.is_closed
    monkeypatch.setattr(connections, "STALLED_S", -1.0)
    served.looks.pop()()

    assert lives and first.opened.is_closed
    assert await second.answer() == b"."
    await waiting
    first.close()
    second.close()


class Asker:
    """Has a part of its next request in the memory of the last one, or nothing."""

    def __init__(self) -> None:
        self.held = self.asked = 0

    def on_room(self, count: int) -> None:
        assert count == self.asked, "all of it at once"
        self.held, self.asked = self.held + count, 0

    def give_back_unused(self) -> None: ...
    def close_if_stalled(self) -> None: ...


@given(seed=st.integers(0, 1 << 32))
def test_every_holder_that_asks_gets_room_in_the_end(seed: int) -> None:
    random, room = Random(seed), RequestRoom(100, look_later=lambda _: None)
    askers = [Asker() for _ in range(5)]

    def step() -> None:
        asker = random.choice(askers)
        if asker.asked:
            return
        if asker.held and random.random() < 0.5:
            count, asker.held = asker.held, 0
            room.give(asker, count)
        else:
            asker.asked = random.randint(1, 120)
            room.ask(asker, asker.asked)
        alone = max((each.held for each in askers), default=0)
        waiting = sum(each.held for each in askers if each.asked)
        assert room.used == sum(each.held for each in askers)
        assert room.used <= 100 + alone + waiting

    for _ in range(200):
        step()
    while any(each.asked for each in askers):
        busy = [each for each in askers if each.held and not each.asked]
        assert busy, "somebody goes on"
        for each in busy:
            count, each.held = each.held, 0
            room.give(each, count)


@pytest.mark.slow
async def test_large_records_of_a_user_over_many_connections_are_all_written(start: Start) -> None:
    security = SASL | {"super_users": "User:alice"}
    broker = await start(security, request_bytes_per_principal_max=LIMIT)
    await add_alice(broker)
    logs = [client_of(broker, user(PASSWORD)) for _ in range(6)]
    await logs[0].topics.create(TopicSettings(name="t", partitions=1))
    written = Batch(batch(f"{0:0{len(REQUEST)}}"), 1)

    async def write(log: KafkaLog) -> list[int]:
        return [await log.append(TopicPartition("t", 0), written) for _ in range(4)]

    offsets = await asyncio.gather(*(write(log) for log in logs))
    for log in logs:
        await log.close()

    assert sorted(each for some in offsets for each in some) == [*range(6 * 4)]
