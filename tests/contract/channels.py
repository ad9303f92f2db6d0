"""Connections that misbehave: answers get lost on the way, and brokers pretend to be older."""

import asyncio
from asyncio import Future
from collections.abc import Callable
from dataclasses import replace

from headwater.core_log.links.connection import Channel, ConnectionLost, connect
from headwater.core_log.links.rpc import Dial
from headwater.core_log.protocol.frames import read_response_header
from headwater.core_log.protocol.message import decode, encode
from headwater.core_log.protocol.messages.api_versions import ApiVersionsResponse

API_VERSIONS, FIRST_VERSION = 18, 3

OnAnswer = Callable[[int, memoryview], memoryview | None]
"""From an API key and the broker's answer to what arrives; None loses it with its connection."""


class TamperedChannel:
    """The broker has received and done what it was asked; what comes back is up to `on_answer`."""

    def __init__(self, inner: Channel, on_answer: OnAnswer) -> None:
        self._inner, self._on_answer = inner, on_answer

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def is_in_process(self) -> bool:
        return self._inner.is_in_process

    @property
    def in_flight(self) -> int:
        return self._inner.in_flight

    def ask(self, frame: bytearray, correlation_id: int) -> "Future[memoryview]":
        api_key = int.from_bytes(frame[4:6], "big")
        arriving: Future[memoryview] = asyncio.get_running_loop().create_future()
        asked = self._inner.ask(frame, correlation_id)
        asked.add_done_callback(lambda answer: self._pass_on(api_key, answer, arriving))
        return arriving

    def tell(self, frame: bytearray) -> None:
        self._inner.tell(frame)

    def close(self) -> None:
        self._inner.close()

    def _pass_on(
        self, api_key: int, answer: "Future[memoryview]", arriving: "Future[memoryview]"
    ) -> None:
        error = answer.exception()
        frame = self._on_answer(api_key, answer.result()) if error is None else None
        if frame is None:
            self._inner.close()
        if arriving.done():
            return
        if frame is None:
            arriving.set_exception(error or ConnectionLost("the answer was lost on the way"))
        else:
            arriving.set_result(frame)


def tampered(on_answer: OnAnswer) -> Dial:
    async def dial(host: str, port: int) -> Channel:
        return TamperedChannel(await connect(host, port, response_bytes_max=1 << 30), on_answer)

    return dial


class LosesEvery:
    """Loses every k-th answer to the given APIs, across all connections."""

    def __init__(self, k: int, *api_keys: int) -> None:
        self._k, self._api_keys = k, api_keys
        self._count = self.lost = 0

    def __call__(self, api_key: int, answer: memoryview) -> memoryview | None:
        if api_key in self._api_keys:
            self._count += 1
            if self._count % self._k == 0:
                self.lost += 1
                return None
        return answer


def without_features(api_key: int, answer: memoryview) -> memoryview | None:
    """As from a cluster that has not finalized transaction.version 2."""
    if api_key != API_VERSIONS:
        return answer
    _, position = read_response_header(answer, API_VERSIONS, FIRST_VERSION)
    said = decode(ApiVersionsResponse, answer, FIRST_VERSION, position)
    older = replace(said, finalized_features=(), finalized_features_epoch=-1)
    return memoryview(bytes(answer[:position]) + encode(older, FIRST_VERSION))
