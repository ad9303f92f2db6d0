"""The log in this process: a broker of our own, reached by calls instead of connections."""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Self

from headwater.core_log.broker.connection import Answer, Reply, ResponsePart
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.kafka_log import dialling
from headwater.core_log.client.settings import security_at
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.connection import Channel
from headwater.core_log.security.login import Login, LoginSession
from headwater.core_log.security.principal import LOCAL, Principal

UNKNOWN_TOPIC_FOR_MS = 200
"""Metadata in this process is hardly ever behind, so a missing topic is soon believed to be."""
LENGTH_BYTES = 4


class EmbeddedLog(KafkaLog):
    """Says and hears exactly what a client over the network would, so that there is one way to
    append and to read; only the way there is shorter. Others reach the same broker at `endpoint`.
    """

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self._connect = dialling(self._settings())
        super().__init__(self._settings(), dial=self._dial)

    @classmethod
    async def open(
        cls, settings: BrokerSettings, *, http: str | None = None, command: str | None = None
    ) -> Self:
        """Takes the data directory, or raises `DirectoryInUse`. `http` and `command` are what
        others are told, see `Endpoint`."""
        return cls(await RunningBroker.start(settings, http=http, command=command))

    def beside(self, **settings: object) -> KafkaLog:
        """Another client of this broker, just as near, with settings of its own."""
        return KafkaLog(self._settings().model_copy(update=settings), dial=self._dial)

    def _settings(self) -> KafkaSettings:
        return KafkaSettings(
            bootstrap=[self.endpoint],
            security=security_at(self.running.describe()),
            rack=self.running.broker.settings.rack,
            unknown_topic_for_ms=UNKNOWN_TOPIC_FOR_MS,
        )

    async def _dial(self, host: str, port: int) -> Channel:
        """The other brokers of a cluster are reached by connections."""
        server = self.running.server
        if self.running.broker.has_others and (host, port) != server.address:
            return await self._connect(host, port)
        return InProcessChannel(server, server.address)

    @property
    def endpoint(self) -> str:
        """HOST:PORT for everybody else."""
        return self.running.endpoint

    async def close(self) -> None:
        await super().close()
        await self.running.stop()


class InProcessChannel:
    """Replaces a connection: the same frames in the same order, without a socket.

    Nobody has to prove anything here. As on a connection, a request that must wait blocks those
    after it, except a Produce that only waits for the disk.
    """

    is_in_process = True

    def __init__(self, server: BrokerServer, address: tuple[str, int]) -> None:
        """`address` is what clients are told to connect to."""
        self._server = server
        self._asked: deque[tuple[bytearray, Future[memoryview] | None]] = deque()
        self._unanswered = dict[Future[memoryview], None]()
        self._is_blocked = False
        self._mute_end_s = 0.0
        self.is_open = True
        self.is_closed = False
        self.client_host, self.client_port = "in-process", 0
        self.listener_host, self.listener_port = address
        self.principal: Principal = LOCAL
        self.login: Login | None = None
        self.session: LoginSession | None = None
        server.join(self)

    @property
    def in_flight(self) -> int:
        return len(self._unanswered)

    def ask(self, frame: bytearray, correlation_id: int) -> Future[memoryview]:
        answer: Future[memoryview] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            answer.set_exception(LogUnavailable("the embedded log is closed"))
            return answer
        self._unanswered[answer] = None
        answer.add_done_callback(self._unanswered.pop)
        self._asked.append((frame, answer))
        self._serve()
        return answer

    def tell(self, frame: bytearray) -> None:
        self._asked.append((frame, None))
        self._serve()

    def _serve(self) -> None:
        while self._asked and not (self._is_blocked or self._is_muted or self.is_closed):
            frame, waiting = self._asked.popleft()
            view = memoryview(frame)[LENGTH_BYTES:]  # the broker stamps batches in this memory
            try:
                answer = self._server.answer(view, self)
            except HeadwaterError as error:
                self._fail(waiting, error)
                continue
            if isinstance(answer, bytes | Reply) or answer is None:
                self._settle(answer, waiting)
            else:
                self._is_blocked = True
                task = asyncio.ensure_future(answer)
                task.add_done_callback(partial(self._on_answered, waiting))

    def _on_answered(self, waiting: Future[memoryview] | None, task: Future[Answer]) -> None:
        self._is_blocked = False
        if task.cancelled():
            self.close()
        elif (error := task.exception()) is not None:
            self._fail(waiting, error)
        else:
            self._settle(task.result(), waiting)
        self._serve()

    def _settle(self, answer: Answer, waiting: Future[memoryview] | None) -> None:
        if answer is None or waiting is None:
            return
        if isinstance(answer, bytes):
            _deliver((answer,), waiting)
        elif answer.chunks is not None:
            _deliver(answer.chunks, waiting)
        else:
            answer.attach(_ReplyTaker(self, waiting))
            if answer.blocks:
                self._is_blocked = True
                waiting.add_done_callback(self._go_on)

    def _go_on(self, _: Future[memoryview]) -> None:
        """Called when the blocking request is answered, or its caller is gone."""
        self._is_blocked = False
        self._serve()

    def _fail(self, waiting: Future[memoryview] | None, error: BaseException) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def admit(self, principal: Principal, session: LoginSession | None = None) -> None:
        self.principal, self.login, self.session = principal, None, session

    @property
    def _is_muted(self) -> bool:
        return self._mute_end_s > 0 and asyncio.get_running_loop().time() < self._mute_end_s

    def mute(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._mute_end_s = max(self._mute_end_s, loop.time() + wait_ms / 1_000)
        loop.call_at(self._mute_end_s, self._serve)

    def close_when_sent(self) -> None:
        self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_open, self.is_closed = False, True
        for waiting in list(self._unanswered):
            self._fail(waiting, LogUnavailable("the embedded log is closed"))
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # its caller may be gone
        self._server.on_closed(self)


class _ReplyTaker:
    """Connects one reply to its waiting caller."""

    __slots__ = ("_channel", "_waiting")

    def __init__(self, channel: InProcessChannel, waiting: Future[memoryview]) -> None:
        self._channel, self._waiting = channel, waiting

    @property
    def is_closed(self) -> bool:
        return self._channel.is_closed or self._waiting.done()

    def on_fulfilled(self, reply: Reply) -> None:
        _deliver(reply.chunks or (), self._waiting)


def _deliver(chunks: Sequence[ResponsePart], waiting: Future[memoryview]) -> None:
    """Delivers the whole answer in one part, without its length."""
    if waiting.done():
        return
    buffers = [chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks]
    frame = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    waiting.set_result(memoryview(frame)[LENGTH_BYTES:])
