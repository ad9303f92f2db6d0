"""The duties of the broker that leads the metadata quorum: brokers register with it, live or are
fenced, and it keeps the quorum at its size."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.replica_losses import losses_in
from headwater.core_log.foundation.errors import HeadwaterError, NotController
from headwater.core_log.links.connection import ConnectionLost, ConnectionRefused
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import (
    BrokerRegistrationResponse,
    MemberRegistrationRequest,
)
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headwater.core_log.replication.decisions import NO_ID
from headwater.core_log.replication.features import MetadataVersions
from headwater.core_log.replication.liveness import Liveness
from headwater.core_log.replication.metadata_records import FIRST_VERSION, METADATA_FEATURE
from headwater.core_log.replication.quorum import QuorumRefusal
from headwater.core_log.replication.topic_config import MIN_IN_SYNC
from headwater.core_log.replication.voters import Absences, Electorate, Voters

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
LOOK_S = 0.25
DIALS_MAX, DIAL_AGAIN_S = 3, 0.05
"""A process that ends closes its connections perhaps before its port."""

GROWTH_MS = 10_000
"""How long a broker that has just joined may be without copies."""
NEXT_COPIES_MS = 500
"""Few partitions are copied at a time: the next ones soon after these."""
MIN_IN_SYNC_MS = 500
LEADERS_MS = 300_000  # Kafka's leader.imbalance.check.interval.seconds


class ActiveController:
    """Its duties begin once everything that earlier controllers have decided is applied."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._liveness: Liveness | None = None
        self._versions = MetadataVersions()
        self._absences = Absences()
        self._epoch = -1
        self._duties: asyncio.Task[None] | None = None
        self._looks: dict[int, asyncio.Task[None]] = {}
        self._heartbeat_peers: dict[int, Peer] = {}
        """The connections by which brokers sent their last heartbeats."""
        self._has_others = asyncio.Event()

    def on_metadata(self) -> None:
        """Called for every change of the metadata: a broker alone has nobody to look at."""
        if len(self._broker.image.brokers) > 1:
            self._has_others.set()

    def on_role(self) -> None:
        """Called when this broker begins to lead the quorum, or has lost the lead."""
        if self._broker.quorum.is_leader:
            if self._epoch != self._broker.quorum.leader_epoch:
                self.end()
                self._epoch = self._broker.quorum.leader_epoch
                self._duties = asyncio.get_running_loop().create_task(self._work())
        else:
            self.end()

    def end(self) -> None:
        self._liveness, self._epoch = None, -1
        self._broker.controller.unheard.clear()
        for task in (self._duties, *self._looks.values()):
            if task is not None:
                task.cancel()
        self._duties = None
        self._looks.clear()
        self._heartbeat_peers.clear()

    def on_closed(self, peer: Peer) -> None:
        """Called when a connection ends: a broker whose heartbeats came by it may be gone."""
        for broker_id in [each for each, of in self._heartbeat_peers.items() if of is peer]:
            del self._heartbeat_peers[broker_id]
            self._look_at(broker_id)

    async def _work(self) -> None:
        broker = self._broker
        try:
            await broker.metadata.settle()
            await broker.metadata.change(broker.finalize_features)
        except HeadwaterError as error:
            logger.debug("the controller's duties do not begin: %s", error)
            return
        now_ms = broker.clock.monotonic_ms()
        self._versions = MetadataVersions()
        liveness = self._liveness = Liveness(broker.image.alive, now_ms=now_ms)
        broker.controller.unheard.update(
            each for each in broker.image.alive if each != broker.node_id
        )
        deposed, heard_ms = broker.quorum.last_leader
        if broker.image.is_alive(deposed):  # its silence is what made this broker the controller
            liveness.on_heartbeat(deposed, heard_ms)
        self.on_metadata()
        await self._has_others.wait()
        for broker_id in broker.image.alive:
            self._look_at(broker_id)
        balance = ClusterBalance(broker, now_ms=broker.clock.monotonic_ms())
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look(liveness)
                await balance.look(broker.clock.monotonic_ms())
            except NotController:
                return
            except HeadwaterError as error:
                logger.error("a duty of the controller has failed: %s", error)

    async def _look(self, liveness: Liveness) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        liveness.look(now_ms)
        for broker_id in liveness.list_silent(now_ms):
            self._look_at(broker_id)
        for broker_id in liveness.list_expired(now_ms):
            await self._fence(broker_id, "its session has expired")
        self._propose_voters(now_ms)
        await self._raise_metadata_version()

    async def _raise_metadata_version(self) -> None:
        """Once every registered broker reads a newer version of the metadata, that is written."""
        broker, versions = self._broker, self._versions
        now = broker.image.features.get(METADATA_FEATURE, FIRST_VERSION)
        own = broker.feature_levels
        if now >= own.get(METADATA_FEATURE, FIRST_VERSION):
            return
        versions.on_heard(broker.node_id, broker.broker_epoch, own)
        for broker_id in versions.list_unknown(broker.image.brokers):
            if broker.image.is_alive(broker_id):
                self._look_at(broker_id)
        common = versions.find_common(broker.image.brokers)
        if common is not None and common > now:
            await broker.metadata.change(
                lambda: broker.controller.features.raise_metadata_version(common)
            )
            logger.info("the metadata version is raised to %d, which all brokers support", common)

    def _look_at(self, broker_id: int) -> None:
        """Dials a broker that may be gone: a refused connection says that its process is, long
        before its session ends."""
        if broker_id != self._broker.node_id and broker_id not in self._looks:
            work = asyncio.get_running_loop().create_task(self._dial(broker_id))
            self._looks[broker_id] = work
            work.add_done_callback(lambda _: self._looks.pop(broker_id, None))

    async def _dial(self, broker_id: int) -> None:
        known = self._broker.image.brokers.get(broker_id)
        for _ in range(DIALS_MAX):
            try:
                answer = await self._broker.peers.ask(broker_id, ApiVersionsRequest())
            except ConnectionRefused:
                if known == self._broker.image.brokers.get(broker_id):
                    await self._fence(broker_id, "its address refuses connections")
                return
            except ConnectionLost as error:
                logger.debug("broker %d does not answer: %s", broker_id, error)
                await asyncio.sleep(DIAL_AGAIN_S)
            except HeadwaterError as error:
                logger.debug("broker %d does not answer: %s", broker_id, error)
                return
            else:
                self._broker.controller.unheard.discard(broker_id)
                if known is not None:
                    levels = {each.name: each.max_version for each in answer.supported_features}
                    self._versions.on_heard(broker_id, known.broker_epoch, levels)
                return

    async def _fence(self, broker_id: int, why: str) -> None:
        liveness, broker = self._liveness, self._broker
        if liveness is None:
            return
        if broker.image.is_alive(broker_id):
            logger.warning("broker %d is fenced: %s", broker_id, why)
        try:
            await broker.metadata.change(lambda: broker.controller.fence_broker(broker_id))
        except NotController as error:
            logger.debug("broker %d is left to the next controller: %s", broker_id, error)
            return
        liveness.on_gone(broker_id)

    async def register(self, request: MemberRegistrationRequest) -> BrokerRegistrationResponse:
        broker, liveness = self._broker, self._liveness
        if liveness is None:
            return BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
        if request.cluster_id != broker.cluster_id:
            return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not request.listeners or not request.log_dirs:
            return BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REQUEST)
        broker_id, directory_id = request.broker_id, request.log_dirs[0]
        own_ids = (NO_ID, directory_id, request.former_directory_id)
        has_new_disk = self._directory_of(broker_id) not in own_ids
        if has_new_disk and liveness.is_live(broker_id, broker.clock.monotonic_ms()):
            return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        levels = {each.name: each.max_supported_version for each in request.features}
        written = broker.image.features.get(METADATA_FEATURE, FIRST_VERSION)
        if levels.get(METADATA_FEATURE, FIRST_VERSION) < written:
            return BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if broker_id not in broker.image.brokers:
            if broker.settings.fsync == "never":
                return BrokerRegistrationResponse(error_code=ErrorCode.POLICY_VIOLATION)
            if not broker.is_open:
                return BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)
            await broker.end_short_cuts()
        listener = request.listeners[0]
        epoch = await broker.metadata.change(
            lambda: broker.controller.register_broker(
                broker_id,
                request.incarnation_id,
                host=listener.host,
                port=listener.port,
                rack=request.rack,
                now_ms=broker.clock.now_ms(),
                is_fenced=True,
                directory_id=directory_id,
                losses=losses_in(request, broker.image, has_new_disk=has_new_disk),
            )
        )
        liveness.on_heartbeat(broker_id, broker.clock.monotonic_ms())
        self._versions.on_heard(broker_id, epoch, levels)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _directory_of(self, broker_id: int) -> UUID:
        """Returns the directory that the broker had before; a founder's is known as a voter's."""
        known = self._broker.image.brokers.get(broker_id)
        if known is None:
            return NO_ID
        if known.directory_id != NO_ID:
            return known.directory_id
        voters = self._broker.quorum.voters
        return next((each.directory_id for each in voters if each.node_id == broker_id), NO_ID)

    async def heartbeat(
        self, request: BrokerHeartbeatRequest, peer: Peer | None
    ) -> BrokerHeartbeatResponse:
        broker, liveness = self._broker, self._liveness
        if liveness is None:
            return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
        broker_id, epoch = request.broker_id, request.broker_epoch
        known = broker.image.brokers.get(broker_id)
        if known is None or known.broker_epoch != epoch or known.is_over:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        liveness.on_heartbeat(broker_id, broker.clock.monotonic_ms())
        broker.controller.unheard.discard(broker_id)
        if peer is not None and peer.is_closed:  # it was sent just before the broker's end
            self._look_at(broker_id)
        elif peer is not None:
            self._heartbeat_peers[broker_id] = peer
        if request.want_shut_down:
            await self._fence(broker_id, "it stops")
            return BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True)
        if request.want_fence and not known.is_fenced and len(broker.image.alive) > 1:
            await self._fence(broker_id, "its disk hangs")
        is_caught_up = request.current_metadata_offset > epoch
        if known.is_fenced and is_caught_up and not request.want_fence:
            refused = await broker.metadata.change(
                lambda: broker.controller.unfence_broker(
                    broker_id, epoch, now_ms=broker.clock.now_ms()
                )
            )
            if refused is not None:
                return BrokerHeartbeatResponse(error_code=refused.code)
        is_fenced = not broker.image.is_alive(broker_id)
        return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced)

    async def change_voters(self, change: Callable[[Voters], Voters]) -> QuorumRefusal | None:
        """Returns once another set of voters is committed, or the reason why it cannot be
        proposed now."""
        driver = self._broker.quorum
        wanted = change(driver.quorum.voters.latest)
        now_ms = self._broker.clock.monotonic_ms()
        effects = driver.quorum.propose_voters(wanted, now_ms)
        if isinstance(effects, QuorumRefusal):
            return effects
        driver.do(effects)
        await driver.wait_committed(driver.end_offset)
        return None

    def _propose_voters(self, now_ms: int) -> None:
        """Changes the voters as they should be. Otherwise this node's own record is brought up to
        date."""
        driver = self._broker.quorum
        change = self._electorate(now_ms).choose()
        if change is None:
            if driver.places.outdated is not None:
                driver.update_voter(driver.places.outdated)
            return
        effects = driver.quorum.propose_voters(change.voters, now_ms)
        if isinstance(effects, QuorumRefusal):
            logger.debug("the voters do not change yet: %s", effects.value)
            return
        if change.gone is not None and change.new is not None:
            gone, new = change.gone, change.new
            driver.places.replace(gone, new)
            logger.warning(
                "node %d votes in the metadata quorum in the place of node %d, which is away",
                new.node_id,
                gone.node_id,
            )
        voting = sorted(each.node_id for each in change.voters)
        logger.info("the metadata quorum votes with nodes %s", voting)
        driver.do(effects)

    def _electorate(self, now_ms: int) -> Electorate:
        driver, image = self._broker.quorum, self._broker.image
        quorum, places = driver.quorum, driver.places
        voters = quorum.voters.latest
        up_to_date = {e for e, offset in quorum.progress.items() if offset >= quorum.high_watermark}
        observers = [
            each
            for each in sorted(up_to_date - voters)
            if image.is_alive(each.node_id)
            and image.brokers[each.node_id].directory_id == each.directory_id
        ]
        others = voters - {driver.replica}
        self._absences.look({each: quorum.heard_ms.get(each, 0) for each in others}, now_ms)
        limit_ms = self._broker.settings.replace_voters_after_ms
        return Electorate(
            voters,
            quorum.voters.before_latest,
            places.replaced,
            places.was_replacing,
            up_to_date | {driver.replica},
            observers,
            {each: known.rack for each, known in image.brokers.items()},
            [] if limit_ms is None else self._absences.list_away(for_ms=limit_ms),
        )


class ClusterBalance:
    """Gives topics more replicas when there are more brokers, sets min.insync.replicas to 2, and
    lets first replicas lead again. Begins with a new controller, so that nothing moves just because
    one is new."""

    def __init__(self, broker: "Broker", *, now_ms: int) -> None:
        self._broker = broker
        self._growth_due_ms = now_ms + GROWTH_MS
        self._leaders_due_ms = now_ms + LEADERS_MS
        self._min_in_sync_due_ms = now_ms

    async def look(self, now_ms: int) -> None:
        """Called by the controller several times a second."""
        broker, controller = self._broker, self._broker.controller
        if now_ms >= self._min_in_sync_due_ms and MIN_IN_SYNC not in broker.image.cluster_config:
            self._min_in_sync_due_ms = now_ms + MIN_IN_SYNC_MS
            if await broker.metadata.change(controller.cluster_config.ask_for_two_disks):
                least = broker.image.cluster_config[MIN_IN_SYNC]
                logger.info("topics without a %s of their own have %s", MIN_IN_SYNC, least)
        if now_ms >= self._growth_due_ms:
            self._growth_due_ms = now_ms + GROWTH_MS
            count = await broker.metadata.change(controller.reassignments.grow)
            if count:
                logger.info("%d partition(s) get more replicas", count)
            if controller.reassignments.count_copied():
                self._growth_due_ms = now_ms + NEXT_COPIES_MS
        if now_ms >= self._leaders_due_ms:
            self._leaders_due_ms = now_ms + LEADERS_MS
            count = await broker.metadata.change(controller.elections.balance)
            if count:
                logger.info("%d partition(s) are led by their first replica again", count)
