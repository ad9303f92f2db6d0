"""This broker as one of several: it registers with the controller, says that it lives, and leaves
when it stops."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.broker.peers import Address, Peers, PeerSettings
from headwater.core_log.broker.quorum_log import LISTENER
from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    LogRejected,
    LogUnavailable,
)
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.node import open_link
from headwater.core_log.links.rpc import Dial, Rpc
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import MemberRegistrationRequest
from headwater.core_log.protocol.message import Request
from headwater.core_log.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.core_log.protocol.messages.broker_registration import BrokerFeature, BrokerListener
from headwater.core_log.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.liveness import HEARTBEAT_MS
from headwater.core_log.security.principal import CLUSTER
from headwater.core_log.storage.properties import decode_uuid

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
PLAINTEXT = 0
RETRY_S = 0.1
LOGGED_AFTER_S = 5.0
DUPLICATE_S_MAX = 6.0
"""Two sessions: who still has our id by then does not go away."""
LEAVE_S_MAX = 2.0
PATIENCE_S = 10.0
HUNG_ANSWER_S_MAX = 1.0
"""How long the answer to a heartbeat is waited for while the disk hangs: the quorum, which this
broker may lead, needs another leader then."""
A = TypeVar("A")


class ClusterMember:
    """The registration of this broker, and its heartbeats."""

    def __init__(self, broker: "Broker", dial: Dial) -> None:
        self._broker = broker
        self._incarnation_id = broker.new_id()
        self._beats: asyncio.Task[None] | None = None
        self._is_ready, self._unfenced = False, asyncio.Event()
        self._lives: dict[int, int] = {}
        """The epochs of the brokers that were alive when the metadata was last looked at."""
        self.peers = Peers(
            dial,
            address_of=broker.address_of,
            controller_id=lambda: broker.quorum.leader_id,
            answer_here=self._answer_here,
            node_id=broker.node_id,
            settings=broker.peer_settings,
        )

    async def _answer_here(self, request: Request[Any]) -> Any:
        served = self._broker.served[request.api_key]
        assert served.handler is not None, "a raw handler answers connections only"
        host, port = self._broker.address
        context = RequestContext(
            served.versions[1], "headwater-broker", host, host, port, principal=CLUSTER
        )
        return await served.handler(self._broker, request, context)

    async def ask_patiently(self, request: Request[A]) -> A:
        """Asks the controller, and the next one where there is another, for a while."""
        time = asyncio.get_running_loop().time
        end_s = time() + PATIENCE_S
        while True:
            try:
                answer = await self.peers.ask_controller(request)
                code = getattr(answer, "error_code", ErrorCode.NONE)
                if code != ErrorCode.NOT_CONTROLLER or time() > end_s:
                    return answer
            except (ConnectionLost, HeadwaterError) as error:
                if time() > end_s or self._broker.is_stopping:
                    raise LogUnavailable(
                        "the controller does not answer", reason=str(error)
                    ) from error
            await asyncio.sleep(RETRY_S)

    async def register(self) -> int:
        """Returns the broker epoch once a controller has registered us."""
        time = asyncio.get_running_loop().time
        began_s, is_logged = time(), False
        while True:
            code, epoch = await self._try_to_register()
            if code is ErrorCode.NONE:
                return epoch
            waited_s = time() - began_s
            if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and waited_s > DUPLICATE_S_MAX:
                raise duplicate_id_error(self._broker.node_id)
            if code is ErrorCode.POLICY_VIOLATION:
                raise ConfigError(
                    "the cluster's first broker runs with fsync=never",
                    hint="start it with fsync=group: what a cluster promises is on its disks",
                )
            if code is ErrorCode.UNSUPPORTED_VERSION:
                raise ConfigError(
                    "the other brokers write metadata that this version does not read",
                    hint="start this broker with their version of headwater, or a newer one",
                )
            if code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                raise ConfigError(
                    "the data directory belongs to another cluster",
                    hint="use another data directory, or join at other addresses",
                    cluster_id=self._broker.cluster_id,
                )
            if waited_s > LOGGED_AFTER_S and not is_logged:
                is_logged = True
                logger.warning("the cluster has no controller yet; waiting for it")
            await asyncio.sleep(RETRY_S)

    async def _try_to_register(self) -> tuple[ErrorCode, int]:
        broker, (host, port) = self._broker, self._broker.address
        former = broker.store.former_directory_id
        request = MemberRegistrationRequest(
            broker_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=(
                BrokerListener(name=LISTENER, host=host, port=port, security_protocol=PLAINTEXT),
            ),
            features=[
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in broker.supported_features.items()
            ],
            rack=broker.settings.rack or None,
            log_dirs=(decode_uuid(broker.store.directory_id),),
            previous_broker_epoch=max(broker.broker_epoch, broker.store.stop_epoch),
            former_directory_id=ZERO_UUID if former is None else decode_uuid(former),
            losses=broker.losses.list(),
        )
        try:
            answer = await self.peers.ask_controller(request)
        except (ConnectionLost, HeadwaterError) as error:
            logger.debug("the registration is not answered: %s", error)
            return ErrorCode.NOT_CONTROLLER, -1
        return ErrorCode(answer.error_code), answer.broker_epoch

    def on_metadata(self) -> None:
        """Called for every change of the metadata: heartbeats begin with the second broker. One
        without power, or that is cut off, closes no connection before it is fenced."""
        image = self._broker.image
        lives = {each: image.brokers[each].broker_epoch for each in image.alive}
        for node_id, epoch in self._lives.items():
            if lives.get(node_id) != epoch:
                self.peers.leave(node_id)
        self._lives = lives
        if self._broker.image.is_alive(self._broker.node_id):
            self._unfenced.set()
        if self._beats is None and len(self._broker.image.brokers) > 1:
            self._beats = asyncio.get_running_loop().create_task(self._beat())

    async def until_unfenced(self) -> None:
        """Returns once this broker may lead and be in sync. Called when its partitions are open,
        and the controller knows what they have lost."""
        self._is_ready = True
        self.on_metadata()
        await self._unfenced.wait()

    @property
    def _wants_fence(self) -> bool:
        """Whether this broker had better not lead nor be waited for: its partitions are not open
        yet, or its disk hangs."""
        return not self._is_ready or self._broker.committer.hangs

    async def _beat(self) -> None:
        is_hung = False
        while True:
            if is_hung is not self._broker.committer.hangs:
                is_hung = not is_hung
                logger.warning("the disk %s", "hangs: others take over" if is_hung else "is back")
            try:
                async with asyncio.timeout(HUNG_ANSWER_S_MAX if is_hung else None):
                    await self._beat_once()
            except ConfigError as error:
                logger.error("the broker is not a member of the cluster any more: %s", error)
                return
            except (TimeoutError, ConnectionLost, HeadwaterError) as error:
                logger.debug("the heartbeat is not answered: %s", error)
            if is_hung:  # the fence comes first: it is decided by what the others have on disk
                await self._broker.quorum.hand_over()
            is_fenced = not self._broker.image.is_alive(self._broker.node_id)
            pause_ms = RETRY_S * 1_000 if is_fenced or is_hung else HEARTBEAT_MS
            await asyncio.sleep(pause_ms / 1_000)

    async def _beat_once(self) -> None:
        broker = self._broker
        answer = await self.peers.ask_controller(
            BrokerHeartbeatRequest(
                broker_id=broker.node_id,
                broker_epoch=broker.broker_epoch,
                current_metadata_offset=broker.image.end_offset,
                want_fence=self._wants_fence,
            )
        )
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            known = broker.image.brokers.get(broker.node_id)
            is_ours = known is not None and known.incarnation_id == self._incarnation_id
            if known is not None and is_ours and known.broker_epoch > broker.broker_epoch:
                broker.broker_epoch = known.broker_epoch  # the answer to it was lost
            else:
                logger.warning("the broker was fenced and registers again")
                broker.broker_epoch = await self.register()

    async def leave(self) -> None:
        """Hands over what this broker leads before it stops, if others can take it."""
        if self._beats is None or self._beats.done():
            return
        self._beats.cancel()
        broker = self._broker
        if broker.quorum.is_leader and broker.quorum.is_alone:
            return
        request = BrokerHeartbeatRequest(
            broker_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            current_metadata_offset=broker.image.end_offset,
            want_shut_down=True,
        )
        with suppress(TimeoutError, ConnectionLost, HeadwaterError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await self.peers.ask_controller(request)

    def end(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
        self.peers.close()


async def describe_cluster(
    dial: Dial, addresses: Sequence[Address], settings: PeerSettings
) -> DescribeClusterResponse | None:
    """Returns the cluster of the first broker that answers, as it describes it."""
    for host, port in addresses:
        try:
            link = await open_accepted(host, port, dial, settings)
        except (ConnectionLost, LogUnavailable) as error:
            logger.debug("the broker at %s:%d cannot be reached: %s", host, port, error)
            continue
        try:
            return await link.ask(DescribeClusterRequest())
        except (ConnectionLost, HeadwaterError) as error:
            logger.debug("the broker at %s:%d does not answer: %s", host, port, error)
        finally:
            link.close()
    return None


async def open_accepted(host: str, port: int, dial: Dial, settings: PeerSettings) -> Rpc:
    """Tries both secrets where there are two; raises `ConfigError` if the broker refuses them."""
    for _ in range(len(settings.find_secrets()) - 1):
        try:
            return await open_link(host, port, dial, settings)
        except LogRejected:
            settings.turn += 1
    try:
        return await open_link(host, port, dial, settings)
    except LogRejected as error:
        raise ConfigError(
            "a broker of the cluster does not accept this one, or is not trusted by it",
            hint="the file of the cluster secret has the same content on all of them; "
            "security.tls.ca_file has the authority that signed their certificates",
            broker=f"{host}:{port}",
            reason=error.statement,
        ) from None


async def find_cluster_id(
    dial: Dial, addresses: Sequence[Address], settings: PeerSettings, *, node_id: int
) -> str:
    """Waits until a broker of the cluster answers, and until nobody there has our node id: after
    its disk was wiped a node may be back before its former session is over."""
    time = asyncio.get_running_loop().time
    began_s, is_logged = time(), False
    while True:
        found = await describe_cluster(dial, addresses, settings)
        if found is not None:
            if node_id not in {each.broker_id for each in found.brokers}:
                return found.cluster_id
            if time() - began_s > DUPLICATE_S_MAX:
                raise duplicate_id_error(node_id)
        elif not is_logged:
            is_logged = True
            where = ", ".join(f"{host}:{port}" for host, port in addresses)
            logger.warning("the cluster does not answer at %s; waiting for it", where)
        await asyncio.sleep(RETRY_S)


def duplicate_id_error(node_id: int) -> ConfigError:
    return ConfigError(
        "the node id belongs to another broker that is running",
        hint="give this broker a node_id of its own, such as 2",
        node_id=node_id,
    )
