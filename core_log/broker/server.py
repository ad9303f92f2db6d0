"""The listener: accepts connections and gives each frame to the handler of its API."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from headwater.core_log.broker.authorization import answer
from headwater.core_log.broker.connection import Answer, ClientConnection, Peer
from headwater.core_log.broker.dispatch import RequestContext, ServedApi
from headwater.core_log.broker.forwarder import forward
from headwater.core_log.foundation.endpoint import parse_address, refuse_unsafe
from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import LENGTH, encode_response, read_request_header
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
BACKLOG = 512
API_VERSIONS = 18
BETWEEN_BROKERS = frozenset({1, API_VERSIONS, 52, 53, 54, 56, 58, 59, 60, 62, 63, 67, 82})
"""APIs that are served before the broker is open, because others need it for the quorum."""
DECODED_BYTES_MAX = 4 << 20
"""Limit for requests that are decoded field by field: their objects are many times as large and
block the loop. Produce may be as large as the settings allow."""


class BrokerServer:
    """Owns the listening socket and every accepted connection."""

    def __init__(self, broker: "Broker", served: Mapping[int, ServedApi]) -> None:
        self._broker, self._served = broker, served
        self.request_bytes_max = broker.settings.request_bytes_max
        self._connections: set[Peer] = set()
        self._is_empty = asyncio.Event()
        self._socket: socket.socket | None = None
        self.is_accepting = False

    @property
    def address(self) -> tuple[str, int]:
        assert self._socket is not None, "the server listens"
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def bind(self, address: str) -> None:
        """Binds the address without accepting yet; refuses an address that other machines can
        reach."""
        host, port = parse_address(address)
        refuse_unsafe(host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise ConfigError(
                "the address cannot be listened on",
                hint="choose another port with --listen, or stop what uses this one",
                address=address,
                reason=error.strerror,
            ) from error
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._socket = listener

    def start_accepting(self) -> None:
        assert self._socket is not None, "accepting means being bound"
        self.is_accepting = True
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._socket is not None, "accepting means listening"
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            if len(self._connections) >= self._broker.settings.connections_max:
                logger.warning("refused a connection: connections_max is reached")
                peer.close()
                continue
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._connections.add(ClientConnection(peer, loop, self))
            except OSError:  # it was closed between connecting and accepting
                peer.close()

    def _pause_accepting(self, error: OSError) -> None:
        """Pauses because file descriptors ran out: existing connections go on, new ones wait a
        little."""
        assert self._socket is not None, "accepting means listening"
        logger.warning("connections cannot be accepted at the moment: %s", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        loop.call_later(0.5, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket is not None:
            self.start_accepting()

    def answer(self, frame: memoryview, peer: Peer) -> Answer | Awaitable[Answer]:
        header = read_request_header(frame)
        served = self._served.get(header.api_key)
        if not self._broker.is_open and header.api_key not in BETWEEN_BROKERS:
            peer.close()  # the client comes again
            return None
        if served is None:
            raise_unserved(header.api_key, header.api_version)
        low, high = served.versions
        if not low <= header.api_version <= high:
            if header.api_key == API_VERSIONS:
                return self._refuse_version(header.correlation_id)
            raise_unserved(header.api_key, header.api_version)
        context = RequestContext(
            header.api_version,
            header.client_id,
            peer.client_host,
            peer.listener_host,
            peer.listener_port,
            peer,
            peer.principal,
        )
        if served.is_forwarded and not self._broker.is_controller:
            return self._forward(bytes(frame), peer)
        if served.raw is not None:
            reply: Answer | Awaitable[Answer] = served.raw(
                self._broker, frame, header.body_position, header.correlation_id, context
            )
            return reply
        if len(frame) > DECODED_BYTES_MAX:
            raise DecodeError("request is too large for its API", size=len(frame))
        request: Any = decode(served.request, frame, header.api_version, header.body_position)
        return self._respond(served, request, header.correlation_id, context)

    async def _respond(
        self, served: ServedApi, request: Any, correlation_id: int, context: RequestContext
    ) -> bytes:
        response = await answer(self._broker, served, request, context)
        return encode_response(response, served.api_key, context.api_version, correlation_id)

    async def _forward(self, frame: bytes, peer: Peer) -> bytes:
        """Passes a request on to the controller, and its answer back as it is."""
        data = await forward(
            self._broker, frame, principal=peer.principal, client_host=peer.client_host
        )
        return LENGTH.pack(len(data)) + data

    def _refuse_version(self, correlation_id: int) -> bytes:
        """Answers an unknown version of ApiVersions in version 0 with our versions."""
        low, high = self._served[API_VERSIONS].versions
        keys = (ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high),)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
        return encode_response(response, API_VERSIONS, 0, correlation_id)

    def join(self, peer: Peer) -> None:
        """Adds a client that does not use the listener."""
        self._connections.add(peer)

    def on_closed(self, peer: Peer) -> None:
        self._connections.discard(peer)
        if not self._connections:
            self._is_empty.set()

    def stop_accepting(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def drain(self, wait_s_max: float) -> None:
        """Answers all received requests, then closes every connection."""
        self.stop_accepting()
        self._is_empty.clear()
        for connection in list(self._connections):
            connection.close_when_sent()
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s_max):
                    await self._is_empty.wait()
        for connection in list(self._connections):
            connection.close()


def raise_unserved(api_key: int, version: int) -> NoReturn:
    """Raises, so that the connection is closed, for an API or version that was not advertised, as
    in Kafka."""
    raise DecodeError("API or version is not served", api_key=api_key, version=version)
