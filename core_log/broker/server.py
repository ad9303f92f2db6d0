"""The listener: accepts connections and gives each frame to the handler of its API."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

from headwater.core_log.broker.authorization import answer
from headwater.core_log.broker.connection import Answer, ClientConnection, Peer
from headwater.core_log.broker.dispatch import RequestContext, ServedApi
from headwater.core_log.broker.forwarder import forward
from headwater.core_log.broker.quotas import (
    EXEMPT,
    FREE,
    RequestUse,
    count_on,
)
from headwater.core_log.broker.request_room import RequestRoom
from headwater.core_log.foundation.endpoint import parse_address
from headwater.core_log.foundation.errors import ConfigError, DecodeError, HeadwaterError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import (
    LENGTH,
    RequestHeader,
    encode_response,
    read_request_header,
    read_response_header,
)
from headwater.core_log.protocol.message import decode, response_type
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)
from headwater.core_log.security.login import API_VERSIONS, SASL_HANDSHAKE, Login
from headwater.core_log.security.principal import ANONYMOUS, Principal, subject_of

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker
    from headwater.core_log.foundation.settings import TlsSettings
    from headwater.core_log.links.tls import Certificates, TlsSocket

logger = logging.getLogger(__name__)
BACKLOG = 512
LOOK_FOR_STALLED_S = 5.0
HELD_BACK_MAX = 256
BETWEEN_BROKERS = frozenset({1, 17, API_VERSIONS, 36, 52, 53, 54, 56, 58, 59, 60, 62, 63, 67, 82})
"""APIs that are served before the broker is open, because others need it for the quorum."""
DECODED_BYTES_MAX = 4 << 20
"""Limit for requests that are decoded field by field: their objects are many times as large and
block the loop. Produce may be as large as the settings allow."""


class BrokerServer:
    """Owns the listening socket and every accepted connection."""

    def __init__(self, broker: "Broker", served: Mapping[int, ServedApi]) -> None:
        self._broker, self._served = broker, served
        self.request_bytes_max = broker.settings.request_bytes_max
        self._connections = dict[Peer, None]()
        self._addresses = Counter[str]()
        """Connections by address."""
        self._rooms = WeakValueDictionary[Principal, RequestRoom]()
        self._unknown: dict[Peer | asyncio.Task[TlsSocket], asyncio.TimerHandle | None] = {}
        """Connections that had to prove who they are, the oldest first, and the end of their
        time."""
        tls = broker.settings.security.tls
        self._certificates = None if tls is None else server_certificates(tls)
        self._held_back: set[socket.socket] = set()
        """Connections that are closed soon, since their address has made too many."""
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
        shaking = sum(isinstance(each, asyncio.Task) for each in self._unknown)
        return len(self._connections) + shaking

    def bind(self, address: str) -> None:
        """Binds the address without accepting yet."""
        host, port = parse_address(address)
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
                peer, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            if not self._has_room(address[0]):
                peer.close()
                continue
            wait_ms = self._broker.quotas.wait_ms_of_connection(address[0])
            if wait_ms:
                self._hold_back(peer, wait_ms)
                continue
            self._addresses[address[0]] += 1
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificates is None:
                self._serve(peer, address[0], ANONYMOUS)
            else:
                shaking = loop.create_task(self._shake_hands(peer))
                shaking.add_done_callback(partial(self._on_shaken, peer, address[0]))
                self._unknown[shaking] = None

    def _has_room(self, host: str) -> bool:
        settings = self._broker.settings
        if self._addresses[host] >= settings.connections_per_address_max:
            self._note(host, "the limit of connections per address is reached")
            return False
        if self.connection_count < settings.connections_max or self._drop_oldest_unknown():
            return True
        logger.warning("refused a connection: connections_max is reached")
        return False

    def _hold_back(self, peer: socket.socket, wait_ms: int) -> None:
        """Closes the connection of an address that has made too many, after a while as in Kafka: at
        once the client would only come again."""
        if len(self._held_back) >= HELD_BACK_MAX:
            peer.close()
            return
        self._held_back.add(peer)
        asyncio.get_running_loop().call_later(wait_ms / 1_000, self._let_go, peer)

    def _let_go(self, peer: socket.socket) -> None:
        self._held_back.discard(peer)
        peer.close()

    def _drop_oldest_unknown(self) -> bool:
        """Makes room: whoever only connects must not keep others out."""
        while self._unknown:
            oldest = next(iter(self._unknown))
            if (end := self._unknown.pop(oldest)) is not None:
                end.cancel()
            if isinstance(oldest, asyncio.Task):
                oldest.cancel()
                return True
            if oldest.login is not None and not oldest.is_closed:
                oldest.close()
                return True
        return False

    async def _shake_hands(self, peer: socket.socket) -> "TlsSocket":
        """Begins TLS. Nobody waits for this client but itself."""
        from headwater.core_log.links.tls import accept_tls

        assert self._certificates is not None, "there is TLS"
        async with asyncio.timeout(self._broker.settings.authentication_wait_ms_max / 1_000):
            return await accept_tls(peer, self._certificates.context)

    def _on_shaken(self, peer: socket.socket, host: str, task: "asyncio.Task[TlsSocket]") -> None:
        self._unknown.pop(task, None)
        try:
            secret = task.result()
            principal = principal_of(secret.peer_certificate())
        except (OSError, HeadwaterError, asyncio.CancelledError) as error:
            peer.close()
            self._forget_address(host)
            why = getattr(error, "verify_message", None) or getattr(error, "reason", None)
            why = why or str(error) or "the handshake took too long"
            self._note(host, f"TLS failed: {why}")
            return
        self._serve(secret, host, principal)

    def _serve(self, peer: "socket.socket | TlsSocket", host: str, principal: Principal) -> None:
        must_log_in = self._broker.security.authenticates and principal == ANONYMOUS
        if not self.has_room_for(principal):
            self._note(host, f"the limit of connections of {principal} is reached")
            peer.close()
            self._forget_address(host)
            return
        loop = asyncio.get_running_loop()
        try:
            connection = ClientConnection(
                peer, loop, self, principal=principal, login=Login() if must_log_in else None
            )
        except OSError:  # it was closed between connecting and accepting
            peer.close()
            self._forget_address(host)
            return
        self._connections[connection] = None
        if must_log_in:
            self.await_login(connection)

    def await_login(self, peer: Peer) -> None:
        """Gives the client some time to prove who it is."""
        limit_s = self._broker.settings.authentication_wait_ms_max / 1_000
        loop = asyncio.get_running_loop()
        self._unknown[peer] = loop.call_later(limit_s, self._end_login, peer)

    def _end_login(self, peer: Peer) -> None:
        self._unknown.pop(peer, None)
        if peer.login is not None and not peer.is_closed:
            self._note(peer.client_host, "the client has not authenticated in time")
            peer.close()

    def _forget_address(self, host: str) -> None:
        self._addresses[host] -= 1
        if self._addresses[host] <= 0:
            del self._addresses[host]

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
        if not self._is_heard(header.api_key, peer):
            peer.close()  # the client comes again
            return None
        served = self._served.get(header.api_key)
        if served is None:
            raise_unserved(header.api_key, header.api_version)
        low, high = served.versions
        if not low <= header.api_version <= high:
            if header.api_key == API_VERSIONS:
                return self._refuse_version(header.correlation_id)
            raise_unserved(header.api_key, header.api_version)
        use = None
        if self._broker.quotas.limits_clients:
            use = self._count(header, frame, peer)
        context = RequestContext(
            header.api_version,
            header.client_id,
            peer.client_host,
            peer.listener_host,
            peer.listener_port,
            peer,
            peer.principal,
            use,
        )
        if served.is_forwarded and not self._broker.is_controller:
            return self._forward(bytes(frame), peer, served, context)
        if served.raw is not None:
            reply: Answer | Awaitable[Answer] = served.raw(
                self._broker, frame, header.body_position, header.correlation_id, context
            )
            return reply if use is None else count_on(reply, use)
        if len(frame) > DECODED_BYTES_MAX:
            raise DecodeError("request is too large for its API", size=len(frame))
        request: Any = decode(served.request, frame, header.api_version, header.body_position)
        return self._respond(served, request, header.correlation_id, context)

    def _is_heard(self, api_key: int, peer: Peer) -> bool:
        """Whether the broker is open to the client, and its session goes on. Raises for a request
        out of turn."""
        if peer.login is not None:
            peer.login.expect(api_key)
        elif peer.session is not None:
            is_over = self._broker.clock.monotonic_ms() > peer.session.end_ms
            if is_over and api_key != SASL_HANDSHAKE:
                return False
        return self._broker.is_open or api_key in BETWEEN_BROKERS

    def has_room_for(self, principal: Principal) -> bool:
        """Whether one more connection of the principal is served."""
        if principal in FREE or principal == ANONYMOUS:
            return True
        known = sum(each.principal == principal for each in self._connections)
        return known < self._broker.settings.connections_per_principal_max

    def room_of(self, principal: Principal) -> RequestRoom | None:
        if principal in FREE or principal == ANONYMOUS:
            return None
        room = self._rooms.get(principal)
        if room is None:
            loop = asyncio.get_running_loop()
            room = self._rooms[principal] = RequestRoom(
                self._broker.settings.request_bytes_per_principal_max,
                look_later=partial(loop.call_later, LOOK_FOR_STALLED_S),
            )
        return room

    def _count(self, header: RequestHeader, frame: memoryview, peer: Peer) -> RequestUse | None:
        """Begins to count what the request uses; None where no quota holds."""
        if peer.login is not None or header.api_key in EXEMPT:
            return None
        return self._broker.quotas.count(peer.principal, header.client_id, len(frame), peer)

    async def _respond(
        self, served: ServedApi, request: Any, correlation_id: int, context: RequestContext
    ) -> bytes:
        work, use = answer(self._broker, served, request, context), context.use
        if use is None:
            response = await work
        else:
            response = use.respond(await count_on(work, use), context.api_version)
        return encode_response(response, served.api_key, context.api_version, correlation_id)

    async def _forward(
        self, frame: bytes, peer: Peer, served: ServedApi, context: RequestContext
    ) -> bytes:
        """Passes a request on to the controller, and its answer back as it is; a client that must
        wait does so here."""
        data = await forward(
            self._broker, frame, principal=peer.principal, client_host=peer.client_host
        )
        if context.use is not None:
            version = context.api_version
            kind: Any = response_type(served.request)
            correlation_id, position = read_response_header(
                memoryview(data), served.api_key, version
            )
            response: Any = decode(kind, memoryview(data), version, position)
            told_ms = getattr(response, "throttle_time_ms", 0)
            response = context.use.respond(response, version, wait_ms=told_ms)
            return encode_response(response, served.api_key, version, correlation_id)
        return LENGTH.pack(len(data)) + data

    def _refuse_version(self, correlation_id: int) -> bytes:
        """Answers an unknown version of ApiVersions in version 0 with our versions."""
        low, high = self._served[API_VERSIONS].versions
        keys = (ApiVersion(api_key=API_VERSIONS, min_version=low, max_version=high),)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
        return encode_response(response, API_VERSIONS, 0, correlation_id)

    def join(self, peer: Peer) -> None:
        """Adds a client that does not use the listener."""
        self._connections[peer] = None
        self._addresses[peer.client_host] += 1

    def _note(self, host: str, why: str) -> None:
        """Says why a client is not served; once a minute, so that nobody can fill the log."""
        if self._broker.audit.note_refusal("Connect", ANONYMOUS, host, why):
            logger.warning("closed a connection of %s: %s", host, why)

    def on_closed(self, peer: Peer) -> None:
        if (end := self._unknown.pop(peer, None)) is not None:
            end.cancel()  # it would keep the connection's memory
        if peer in self._connections:
            del self._connections[peer]
            self._forget_address(peer.client_host)
        self._broker.active_controller.on_closed(peer)
        self._broker.replicas.sessions.on_closed(peer)
        if not self._connections:
            self._is_empty.set()

    def stop_accepting(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for peer in self._held_back:
            peer.close()
        self._held_back.clear()

    async def drain(self, wait_s_max: float) -> None:
        """Answers all received requests, then closes every connection."""
        self.stop_accepting()
        self._is_empty.clear()
        for each in list(self._unknown):
            if isinstance(each, asyncio.Task):
                each.cancel()
        for connection in list(self._connections):
            connection.close_when_sent()
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s_max):
                    await self._is_empty.wait()
        for connection in list(self._connections):
            connection.close()


def server_certificates(tls: "TlsSettings") -> "Certificates":
    from headwater.core_log.links.tls import Certificates, server_context

    named = (tls.certificate_file, tls.key_file, tls.client_ca_file)
    return Certificates(lambda: server_context(tls), [each for each in named if each])


def principal_of(certificate: bytes | None) -> Principal:
    """Returns the principal of a client: the name in its certificate, if it has one."""
    return ANONYMOUS if certificate is None else Principal(subject_of(certificate))


def raise_unserved(api_key: int, version: int) -> NoReturn:
    """Raises, so that the connection is closed, for an API or version that was not advertised, as
    in Kafka."""
    raise DecodeError("API or version is not served", api_key=api_key, version=version)
