"""Request frames into a whole broker in memory: every API in every version, and plain noise."""

import asyncio
from collections.abc import Awaitable
from typing import Any
from uuid import UUID

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.connection import Answer, Reply
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol import message
from headwater.core_log.protocol.frames import FLEXIBLE_FROM, encode_request
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.replication import controller
from headwater.core_log.security.login import Login, LoginSession
from headwater.core_log.security.principal import ANONYMOUS, Principal
from tests.core_log.broker.in_memory import SERVED, started
from tests.core_log.broker.test_every_version import REQUESTS, TOPIC
from tests.fakes import MemoryFiles
from tests.fuzz.checksums import sealed

APIS = list(SERVED.values())
NOISE, APPEND = 255, 254
"""As the first byte: what follows is the frame itself, or a batch that only needs its checksum."""
INPUTS_PER_BROKER = 300
PARTITIONS_MAX = 20
"""Per request: thousands are allowed, and rightly take their time."""
TURNS_MAX = 30
"""Of the event loop, after which a request counts as waiting for something that never comes."""


class Stub:
    """Whoever asks."""

    client_host, listener_host, listener_port = "127.0.0.1", "127.0.0.1", 9092
    principal, is_closed = ANONYMOUS, False
    login: Login | None = None
    session: LoginSession | None = None

    def admit(self, principal: Principal, session: LoginSession | None = None) -> None: ...
    def mute(self, wait_ms: int) -> None: ...
    def close_when_sent(self) -> None: ...
    def close(self) -> None: ...


def frame_of(data: bytes) -> bytes:
    """An API, a version, and a body; or a frame as it is."""
    if len(data) < 2 or data[0] == NOISE:
        return data[1:].ljust(8, b"\0")
    if data[0] == APPEND:
        return append_frame(sealed(data[2:]), acks=data[1] % 3 - 1)
    served = APIS[data[0] % len(APIS)]
    low, high = served.versions
    version = low + data[1] % (high - low + 1)
    head = served.api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\4fuzz"
    return head + b"\0" * (version >= FLEXIBLE_FROM.get(served.api_key, NOISE)) + data[2:]


def append_frame(batch: bytes, *, acks: int) -> bytes:
    part = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name=TOPIC, partition_data=[part])
    request = ProduceRequest(transactional_id="t", acks=acks, topic_data=[topic])
    return encode_request(request, 9, 7, "fuzz")[4:]


def seeds() -> list[bytes]:
    """A real request for every version of every API."""
    found = []
    for place, served in enumerate(APIS):
        for version in range(served.versions[0], served.versions[1] + 1):
            fill = REQUESTS.get(served.request)
            request: Any = served.request()
            if fill is not None:
                request = fill(served.request, version, UUID(int=1))
            body = message.encode(request, version)
            found.append(bytes([place, version - served.versions[0]]) + body)
    batch = encode_batch([PlainRecord(b"k", b"v")], producer_id=1, producer_epoch=0)
    return [*found, bytes([APPEND, 0]) + batch, bytes([NOISE]) + frame_of(found[0])]


class Target:
    """One broker for a few hundred inputs, so that what one did is found by the next."""

    def __init__(self) -> None:
        controller.PARTITIONS_PER_REQUEST_MAX = PARTITIONS_MAX
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._on_escaped)
        self._left = 0
        self._broker: Broker | None = None
        self._server: BrokerServer | None = None
        self._escaped: BaseException | None = None

    def _on_escaped(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._escaped = context.get("exception") or RuntimeError(context["message"])

    def __call__(self, data: bytes) -> None:
        if self._left == 0:
            self._loop.run_until_complete(self._renew())
        self._left -= 1
        try:
            self._loop.run_until_complete(self._ask(frame_of(data)))
        except HeadwaterError:
            return
        if self._escaped is not None:
            raise self._escaped

    async def _renew(self) -> None:
        if self._broker is not None:
            await self._broker.close()
        self._left = INPUTS_PER_BROKER
        self._broker = await started(MemoryFiles(), internal_partitions=1)
        self._server = BrokerServer(self._broker, SERVED)
        for name in (TOPIC, "__consumer_offsets", "__transaction_state"):
            await self._broker.create_unknown(name, may_create=True)

    async def _ask(self, frame: bytes) -> None:
        assert self._server is not None, "renewed before the first input"
        answer = self._server.answer(memoryview(bytearray(frame)), Stub())
        if isinstance(answer, Awaitable):
            task: asyncio.Future[Answer] = asyncio.ensure_future(answer)
            for _ in range(TURNS_MAX):
                await asyncio.sleep(0)
                if task.done():
                    break
            else:
                task.cancel()
                await asyncio.wait([task])
                return
            answer = task.result()
        if isinstance(answer, Reply) and answer.chunks is not None:
            for chunk in answer.chunks:
                if not isinstance(chunk, bytes):
                    chunk.read()
