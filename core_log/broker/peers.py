"""The other brokers of the cluster, as this one asks them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from headwater.core_log.foundation.errors import HeadwaterError, LogRejected, LogUnavailable
from headwater.core_log.foundation.settings import SecuritySettings, TlsSettings
from headwater.core_log.links.connection import Channel, ConnectionLost, connect
from headwater.core_log.links.node import Node
from headwater.core_log.links.rpc import Dial
from headwater.core_log.protocol.message import Request
from headwater.core_log.replication.voters import NOBODY
from headwater.core_log.security.login import BETWEEN_NODES
from headwater.core_log.security.principal import CLUSTER

logger = logging.getLogger(__name__)
A = TypeVar("A")
Address = tuple[str, int]
UNPROTECTED = SecuritySettings()
Part = TypeVar("Part")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class PeerSettings:
    """Limits of a connection between brokers. A peer that does not answer counts as lost sooner
    than for a client: somebody else may lead."""

    find_secrets: Callable[[], Sequence[str]] = tuple
    """Returns the cluster secret; two while it is being changed; none without one."""
    tls: TlsSettings | None = None
    turn: int = 0
    """The turn of the secrets: the other one is tried after a refusal."""
    client_id: str = "headwater-broker"
    connect_wait_ms_max: int = 1_000
    request_wait_ms_max: int = 2_000
    requests_in_flight_max: int = 64
    fetch_connections_max: int = 16
    response_bytes_max: int = 128 << 20

    @property
    def security(self) -> SecuritySettings:
        """How this broker proves to others that it belongs to the cluster, and they to it."""
        secrets = self.find_secrets()
        if not secrets:
            return UNPROTECTED
        return SecuritySettings.model_validate(
            {
                "protocol": "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL",
                "mechanism": BETWEEN_NODES,
                "user": CLUSTER.name,
                "password": secrets[self.turn % len(secrets)],
            }
        )


async def dial_peer(host: str, port: int) -> Channel:
    return await connect(host, port, response_bytes_max=PeerSettings().response_bytes_max)


def dial_with(tls: TlsSettings | None) -> Dial:
    """Returns the way to other brokers; `ca_file` is read again when it changes."""
    if tls is None:
        return dial_peer
    from headwater.core_log.links.tls import Certificates, context_of

    trusted = tls.trusted_file
    security = SecuritySettings(protocol="SSL", ca_file=trusted)
    certificates = Certificates(lambda: context_of(security), [trusted])

    async def dial(host: str, port: int) -> Channel:
        bytes_max = PeerSettings().response_bytes_max
        context = certificates.context
        return await connect(host, port, response_bytes_max=bytes_max, tls=context)

    return dial


class Peers:
    """Connections to other brokers by their ids. `ask` is for what is answered at once: requests on
    one connection wait for each other. `poll` is for what waits, such as a fetch, or a decision of
    the controller.

    Both raise `ConnectionLost`, after which nobody knows whether the request was executed, or
    `LogUnavailable` if the broker's address is not known.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        address_of: Callable[[int], Address | None],
        controller_id: Callable[[], int],
        answer_here: Callable[[Request[Any]], Awaitable[Any]],
        node_id: int,
        settings: PeerSettings | None = None,
    ) -> None:
        """`answer_here` answers a request to this very broker, without a connection."""
        self._dial, self._settings = dial, settings or PeerSettings()
        self._address_of, self._controller_id = address_of, controller_id
        self._answer_here, self._node_id = answer_here, node_id
        self._nodes: dict[int | Address, Node] = {}
        self._refusals = set[str]()
        """Those that were logged."""

    async def ask(self, node_id: int, request: Request[A], *, wait_ms: int = 0) -> A:
        """`wait_ms` is the longest time that the broker may wait before it answers."""
        return await self._heeded(self._node(node_id).ask(request, wait_ms=wait_ms))

    async def poll(self, node_id: int, request: Request[A], *, wait_ms: int = 0) -> A:
        return await self._heeded(self._node(node_id).poll(request, wait_ms=wait_ms))

    async def poll_at(self, address: Address, request: Request[A], *, wait_ms: int = 0) -> A:
        """Asks whichever broker listens there."""
        node = self._node_at(address, address)
        return await self._heeded(node.poll(request, wait_ms=wait_ms))

    async def serves(self, node_id: int, api_key: int) -> bool:
        """Whether that broker, which may be an older one, knows these requests."""
        agreement = await self._heeded(self._node(node_id).agreement())
        return api_key in agreement.ranges

    async def _heeded(self, answer: Awaitable[A]) -> A:
        try:
            return await answer
        except LogRejected as error:
            self._settings.turn += 1
            if str(error) not in self._refusals:
                self._refusals.add(str(error))
                logger.error("authentication at another broker has failed: %s", error)
            raise

    async def ask_controller(self, request: Request[A], *, wait_ms: int = 0) -> A:
        """Asks the active controller, as far as it is known; it may answer NOT_CONTROLLER."""
        controller_id = self._controller_id()
        if controller_id == NOBODY:
            raise LogUnavailable("the cluster has no controller at the moment")
        if controller_id == self._node_id:
            answer: A = await self._answer_here(request)
            return answer
        return await self.poll(controller_id, request, wait_ms=wait_ms)

    def leave(self, node_id: int) -> None:
        """Waits for no answer of that broker any more: it is gone, and may come back as another
        process, which has heard nothing."""
        known = self._nodes.get(node_id)
        if known is not None:
            known.disconnect()

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._nodes.clear()

    def _node(self, node_id: int) -> Node:
        address = self._address_of(node_id)
        if address is None:
            raise LogUnavailable("the address of a broker is not known", node_id=node_id)
        return self._node_at(node_id, address)

    def _node_at(self, key: int | Address, address: Address) -> Node:
        known = self._nodes.get(key)
        if known is not None and (known.host, known.port) == address:
            return known
        if known is not None:
            known.leave()
        host, port = address
        node = self._nodes[key] = Node(host, port, dial=self._dial, settings=self._settings)
        return node


class _Asked(NamedTuple, Generic[Part, Answer]):
    part: Part
    answer: "asyncio.Future[Answer]"


class RequestBatches(Generic[Part, Answer]):
    """Sends one request at a time to a broker; what is asked meanwhile goes with the next one."""

    def __init__(self, send: Callable[[int, Sequence[Part]], Awaitable[Sequence[Answer]]]) -> None:
        """`send` asks a broker, and returns an answer for each part in their order."""
        self._send = send
        self._waiting: dict[int, list[_Asked[Part, Answer]]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    async def ask(self, node_id: int, part: Part) -> Answer:
        """Raises `LogUnavailable` if the broker does not answer; nobody knows then whether it has
        heard."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked = _Asked(part, answer)
        self._waiting.setdefault(node_id, []).append(asked)
        if node_id not in self._senders:
            self._senders[node_id] = asyncio.ensure_future(self._send_all(node_id))
        return await answer

    async def _send_all(self, node_id: int) -> None:
        batch: list[_Asked[Part, Answer]] = []
        try:
            while batch := self._waiting.pop(node_id, []):
                try:
                    answers = await self._send(node_id, [each.part for each in batch])
                except (ConnectionLost, HeadwaterError) as error:
                    unheard = LogUnavailable("a broker does not answer", reason=str(error))
                    for each in batch:
                        if not each.answer.done():
                            each.answer.set_exception(unheard)
                    continue
                for each, answer in zip(batch, answers, strict=True):
                    if not each.answer.done():
                        each.answer.set_result(answer)
        finally:
            del self._senders[node_id]
            for each in [*batch, *self._waiting.pop(node_id, [])]:
                each.answer.cancel()

    async def close(self) -> None:
        """Ends requests that are under way; their callers are cancelled."""
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
