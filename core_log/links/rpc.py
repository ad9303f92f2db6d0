"""A connection with negotiated versions: declared messages in, declared messages out."""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Protocol, TypeVar

from headwater.core_log.foundation.errors import LogRejected, LogUnavailable
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.links.connection import Channel, ConnectionLost
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import read_response_header, request_frame
from headwater.core_log.protocol.message import Request, decode, response_type
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest

A = TypeVar("A")

Dial = Callable[[str, int], Awaitable[Channel]]
"""Opens a connection to HOST, PORT."""

OVERDUE_S = 1.0
OnOverdue = Callable[["Future[memoryview]"], None]
"""Called with an answer that is late by this much."""


class LinkSettings(Protocol):
    """The settings of a connection, whoever dials."""

    @property
    def security(self) -> SecuritySettings: ...
    @property
    def client_id(self) -> str: ...
    @property
    def connect_wait_ms_max(self) -> int: ...
    @property
    def request_wait_ms_max(self) -> int: ...
    @property
    def requests_in_flight_max(self) -> int: ...
    @property
    def fetch_connections_max(self) -> int: ...


API_VERSIONS = ApiVersionsRequest.api_key
FIRST_VERSION = 3  # ApiVersions: the first version with finalized features
LOGIN = frozenset({17, 36})
"""SaslHandshake and SaslAuthenticate, which alone are asked while a client authenticates."""
RENEWAL = 0.85
"""The part of a session after which a client authenticates again, as Kafka's client does."""
DRAIN_S = 0.005
REFUSED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class NegotiatedVersions:
    """The API versions of a broker."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    def version_of(self, request: Request[Any], version_max: int | None) -> int:
        """Returns the newest version that both sides support; raises LogRejected if there is
        none."""
        low, high = request.versions
        served_low, served_high = self.ranges.get(request.api_key, (0, -1))
        best = min(high, served_high, high if version_max is None else version_max)
        if best < max(low, served_low):
            raise LogRejected(
                "the cluster does not support a required API",
                hint="use a broker of ours, or Apache Kafka 4.0 or newer",
                request=type(request).__name__,
                served=f"{served_low}-{served_high}",
            )
        return best


class Rpc:
    """Numbers requests, and limits their count and the wait for each answer."""

    def __init__(
        self, channel: Channel, settings: LinkSettings, on_overdue: OnOverdue | None = None
    ) -> None:
        self._channel, self._settings, self._on_overdue = channel, settings, on_overdue
        self._numbers = count()
        self._slots = asyncio.Semaphore(settings.requests_in_flight_max)
        self._agreement = NegotiatedVersions({}, {})
        self._renew_s = inf
        self._authenticate: Authenticate | None = None
        self._renewal: asyncio.Task[None] | None = None

    def begin_session(self, length_ms: int, authenticate: "Authenticate") -> None:
        """Called when the broker has let the client in, for so long if that is not 0 (KIP-368)."""
        self._authenticate = authenticate
        now_s = asyncio.get_running_loop().time()
        self._renew_s = now_s + length_ms / 1_000 * RENEWAL if length_ms else inf

    async def go_on(self) -> None:
        """Authenticates again if it is time to; nothing else is asked meanwhile."""
        loop = asyncio.get_running_loop()
        if self._renewal is None and loop.time() >= self._renew_s:
            self._renewal = loop.create_task(self._renew())
        if self._renewal is not None:
            await asyncio.shield(self._renewal)

    async def _renew(self) -> None:
        assert self._authenticate is not None, "a session has begun"
        try:
            while self._channel.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(DRAIN_S)
            self.begin_session(await self._authenticate(self), self._authenticate)
        except BaseException:
            self.close()
            raise
        finally:
            self._renewal = None

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    @property
    def is_in_process(self) -> bool:
        return self._channel.is_in_process

    @property
    def waiting(self) -> int:
        """Requests without an answer yet."""
        return self._channel.in_flight

    @property
    def agreement(self) -> NegotiatedVersions:
        return self._agreement

    def close(self) -> None:
        self._channel.close()

    async def ask(
        self, request: Request[A], *, version_max: int | None = None, wait_ms: int = 0
    ) -> A:
        """Sends a request; `wait_ms` is the longest time that the broker may wait before it
        answers."""
        version = self._agreement.version_of(request, version_max)
        if request.api_key in LOGIN:
            return await self._exchange(request, version, wait_ms)
        async with self._slots:
            await self.go_on()
            return await self._exchange(request, version, wait_ms)

    def tell(self, request: Request[Any], *, version_max: int | None = None) -> None:
        """Sends a request without an answer: Produce with acks=0."""
        version = self._agreement.version_of(request, version_max)
        self._channel.tell(self._frame(request, version, next(self._numbers)))

    async def agree(self) -> None:
        """Requests the versions first; an older broker answers in version 0."""
        request = ApiVersionsRequest(client_software_name="headwater", client_software_version="1")
        said = await self._exchange(request, FIRST_VERSION, 0)
        if said.error_code == ErrorCode.UNSUPPORTED_VERSION:
            said = await self._exchange(request, 0, 0)
        if said.error_code != ErrorCode.NONE:
            raise LogUnavailable(
                "the broker does not answer a request for its versions", error=said.error_code
            )
        self._agreement = NegotiatedVersions(
            {key.api_key: (key.min_version, key.max_version) for key in said.api_keys},
            {feature.name: feature.max_version_level for feature in said.finalized_features},
        )

    async def _exchange(self, request: Request[A], version: int, wait_ms: int) -> A:
        number = next(self._numbers)
        asked = self._channel.ask(self._frame(request, version, number), number)
        frame = await self._wait_answer(asked, wait_ms)
        _, position = read_response_header(frame, request.api_key, version)
        if request.api_key == API_VERSIONS and frame[position : position + 2] == REFUSED:
            version = 0  # a broker refuses in the one version that everybody reads
        return decode(response_type(type(request)), frame, version, position)

    def _frame(self, request: Request[Any], version: int, number: int) -> bytearray:
        return request_frame(request, version, number, self._settings.client_id)

    async def _wait_answer(self, asked: "Future[memoryview]", wait_ms: int) -> memoryview:
        limit_s = (self._settings.request_wait_ms_max + wait_ms) / 1000
        overdue = None
        if self._on_overdue is not None:
            due_s, loop = OVERDUE_S + wait_ms / 1000, asyncio.get_running_loop()
            overdue = loop.call_later(due_s, self._on_overdue, asked)
        try:
            async with asyncio.timeout(limit_s):
                return await asked
        except TimeoutError as error:
            # Answers come in order, so none after a missing one can be received.
            self._channel.close()
            raise ConnectionLost("the broker does not answer", waited_s=limit_s) from error
        finally:
            if overdue is not None:
                overdue.cancel()


Authenticate = Callable[[Rpc], Awaitable[int]]
"""Authenticates a connection; returns after how many milliseconds it must be done again."""
