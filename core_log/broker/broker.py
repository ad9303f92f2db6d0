"""One broker: its storage, the partitions it leads, and the cluster's metadata, wired together."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from uuid import UUID

from headwater.core_log.broker.active_controller import ActiveController
from headwater.core_log.broker.audit_log import AuditLog
from headwater.core_log.broker.batch_validation import Scratch
from headwater.core_log.broker.cluster_member import ClusterMember
from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.coordination import Coordination
from headwater.core_log.broker.credentials import Credentials, cluster_secret_of
from headwater.core_log.broker.dispatch import ServedApi
from headwater.core_log.broker.forwarder import create_elsewhere
from headwater.core_log.broker.group_commit import GroupCommit
from headwater.core_log.broker.in_sync_proposals import InSyncProposals
from headwater.core_log.broker.metadata_quorum import MetadataQuorum
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.peers import Address, Peers, PeerSettings, dial_peer
from headwater.core_log.broker.quorum_log import METADATA_AT, MetadataStateLog, open_metadata_log
from headwater.core_log.broker.quotas import ClientQuotas
from headwater.core_log.broker.replica_losses import ReplicaLosses
from headwater.core_log.broker.replicas import Replicas
from headwater.core_log.broker.transaction_markers import TransactionMarkers
from headwater.core_log.broker.transaction_verification import TransactionVerifier
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.endpoint import parse_address
from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    LogUnavailable,
    StorageFailed,
)
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.groups.group_coordinator import GroupCoordinator
from headwater.core_log.groups.transaction_coordinator import TransactionCoordinator
from headwater.core_log.links.rpc import Dial
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import NO_ID, Decision
from headwater.core_log.replication.features import SUPPORTED
from headwater.core_log.replication.metadata import (
    INTERNAL_TOPICS,
    METADATA_ID,
    METADATA_TOPIC,
    MetadataChanges,
    MetadataImage,
    Topic,
)
from headwater.core_log.replication.metadata_log import MetadataLog
from headwater.core_log.replication.snapshots import MetadataSnapshots, decode_snapshot
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.replication.voters import (
    ElectionState,
    ReplicaKey,
    VoteLost,
    write_quorum_state,
)
from headwater.core_log.security.acls import Authorizer
from headwater.core_log.security.login import ListenerSecurity, security_of
from headwater.core_log.security.principal import Principal
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.properties import decode_uuid, new_uuid
from headwater.core_log.storage.store import Store

logger = logging.getLogger(__name__)
HASHES_AT_ONCE = 1
OPENING_LOOK_S = 0.25


def authorizer_of(security: ListenerSecurity) -> Authorizer | None:
    """Returns the authorizer; None where nothing depends on who a client is."""
    if not security.guards_nodes:
        return None
    return Authorizer(security.super_users, guards_nodes_only=not security.authenticates)


class Broker:
    """The parts of a broker that handlers use. Its state changes only on the event loop, so there
    are no locks: between two awaits a handler sees one consistent state."""

    supported_features: Mapping[str, tuple[int, int]] = {
        name: (0, level) for name, level in SUPPORTED.items()
    }

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        served: Mapping[int, ServedApi],
        *,
        clock: Clock,
        random: Random,
        dial: Dial = dial_peer,
    ) -> None:
        """`dial` connects to the other brokers of the cluster."""
        self.settings, self.store, self.served, self.clock = settings, store, served, clock
        self.node_id, self.cluster_id = settings.node_id, store.cluster_id
        self._random, self.broker_epoch, self.is_stopping = random, -1, False
        self.configs = TopicConfigs(settings.config, of_cluster=lambda: self.image.cluster_config)
        self.security = security_of(settings)
        secret = cluster_secret_of(settings, store.files)
        self.peer_settings = PeerSettings(secret, settings.security.tls)
        self.credentials = Credentials(
            settings,
            self.security,
            store.files,
            cluster_secrets=secret,
            image=lambda: self.image,
            random=random,
        )
        self.await_login: Callable[[Peer], None] = lambda _: None
        """Bounds the time that a client has for its authentication; the server's."""
        self.has_room_for: Callable[[Principal], bool] = lambda _: True
        """Whether one more connection of the principal is served; the server's."""
        self.hashing = asyncio.Semaphore(HASHES_AT_ONCE)
        """For passwords that clients send, each of which takes milliseconds of a processor."""
        self.opening, self.scratch = asyncio.Lock(), Scratch()
        """For large batches, which are checked one after the other."""
        self.committer = GroupCommit(
            syncs=settings.fsync == "group",
            flush_wait_ms_max=settings.flush_wait_ms_max,
            after_round=self._after_round,
        )
        self.member = ClusterMember(self, dial)
        self.peers: Peers = self.member.peers
        """The other brokers of the cluster."""
        self.replicas = Replicas(self)
        self.losses = ReplicaLosses(self)
        self.proposals = InSyncProposals(self)
        self.find_led = self.replicas.find_led
        self.find_readable = self.replicas.find_readable
        self.coordination: Coordination | None = None
        self.address: Address = ("", 0)
        self.is_open = False
        """Whether clients are served; other brokers are served before."""
        self.authorizer = authorizer_of(self.security)
        """Decides who may do what; without one everybody may do everything."""
        self.quotas = ClientQuotas(clock)
        self.audit = AuditLog(store.files, store.log_directory.parent, clock)
        self.active_controller = ActiveController(self)
        metadata_log = open_metadata_log(store, settings)
        self.snapshots = MetadataSnapshots(store.files, metadata_log.directory)
        self.metadata = MetadataLog(self._enter_metadata(metadata_log), self.snapshots, self._apply)
        self._committed = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self.controller = Controller(
            self.metadata.image,
            self.configs,
            default_partitions=settings.default_partitions,
            internal_partitions=settings.internal_partitions,
            new_id=self.new_id,
        )

    def new_id(self) -> UUID:
        return new_uuid(self._random)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether that is another broker's present registration."""
        known = self.image.brokers.get(broker_id)
        return known is not None and known.broker_epoch == broker_epoch

    @property
    def groups(self) -> GroupCoordinator:
        assert self.coordination is not None, "requests are served once the broker is open"
        self.coordination.note_use()
        return self.coordination.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        assert self.coordination is not None, "requests are served once the broker is open"
        self.coordination.note_use()
        return self.coordination.transactions

    @property
    def markers(self) -> TransactionMarkers:
        assert self.coordination is not None, "requests are served once the broker is open"
        return self.coordination.markers

    @property
    def verifier(self) -> TransactionVerifier:
        assert self.coordination is not None, "requests are served once the broker is open"
        return self.coordination.verifier

    @property
    def has_short_cuts(self) -> bool:
        """Whether transactions take the short cuts of a log with one broker (decision 7)."""
        coordination = self.coordination
        return self.image.has_short_cuts if coordination is None else coordination.has_short_cuts

    async def end_short_cuts(self) -> None:
        """Called before a second broker is registered. Raises if that must wait."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.end_short_cuts()

    @property
    def has_acls(self) -> bool:
        """Whether ACLs say who may do what."""
        return self.authorizer is not None and not self.authorizer.guards_nodes_only

    @property
    def partitions(self) -> Sequence[Partition]:
        """All partitions that this broker leads, including the cluster's metadata."""
        return self.replicas.led

    @property
    def is_controller(self) -> bool:
        """Whether this broker leads the metadata quorum, so that it decides."""
        return self.quorum.is_leader

    @property
    def racks(self) -> Mapping[int, str | None]:
        """The racks of the brokers that are alive."""
        image = self.image
        return {each: image.brokers[each].rack for each in image.alive}

    @property
    def needs_peers(self) -> bool:
        """Whether others must be reached, and reach this broker, before it can open."""
        return not self.quorum.is_alone

    @property
    def has_others(self) -> bool:
        """Whether the cluster has another broker."""
        return any(node_id != self.node_id for node_id in self.image.brokers)

    @property
    def feature_levels(self) -> Mapping[str, int]:
        """The highest levels of the features that this broker supports."""
        return {name: high for name, (_, high) in self.supported_features.items()}

    def finalize_features(self) -> Decision[None]:
        return self.controller.features.finalize(self.node_id, self.feature_levels)

    def address_of(self, node_id: int) -> Address | None:
        """Returns where another broker listens, as the metadata says, or else the quorum."""
        known = self.image.brokers.get(node_id)
        if known is not None:
            return known.host, known.port
        return self.quorum.places.address_of(node_id)

    async def open(self, host: str, port: int) -> None:
        """Reads the cluster's metadata, registers this broker, and makes every partition and
        coordinator ready. Raises `StorageFailed` if the disk fails the metadata meanwhile: nobody
        opens it again before the broker is open."""
        opening = asyncio.ensure_future(self._open(host, port))
        try:
            while not opening.done():
                await asyncio.wait([opening], timeout=OPENING_LOOK_S)
                if (failure := self.quorum.log.failure) is not None and not opening.done():
                    raise StorageFailed(
                        "the disk failed the cluster's metadata at the start", reason=failure
                    )
        finally:
            opening.cancel()
        opening.result()

    async def _open(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.metadata.load_snapshot()
        self._check_syncs(is_alone=self.quorum.is_alone)
        self._take_part()
        if self.quorum.is_alone:
            await self.metadata.change(self.finalize_features)
            self._check_syncs(is_alone=not self.has_others)
            self.broker_epoch = await self.metadata.change(self._register_alone)
        else:
            self.broker_epoch = await self.member.register()
            await self.metadata.wait_applied(self.broker_epoch + 1)
        await self.metadata.listen(self.replicas.open)
        if self.authorizer is not None:
            self.authorizer.use(self.image.acls.values())
        elif self.image.scram:
            logger.warning(
                "the log has users, and lets everybody on this machine act as a broker, who can "
                "read what their passwords are checked against; set security.sasl"
            )
        self.quotas.use(self.image.quotas)
        self.proposals.start()
        self.store.forget_missing(lambda at: self.image.partition(*at) is not None)
        await self.losses.tell()
        self.store.report_strays()
        self.coordination = Coordination(self, self._random)
        await self.coordination.load()
        await self.member.until_unfenced()
        await self.metadata.finish_applying()  # of what it leads from then on
        self.is_open = True

    def _check_syncs(self, *, is_alone: bool) -> None:
        if self.settings.fsync == "never" and not is_alone:
            raise ConfigError(
                "a broker of a cluster must not run with fsync=never",
                hint="leave fsync out: what a cluster promises is on its disks",
            )

    def _register_alone(self) -> Decision[int]:
        """An only voter decides alone that it lives."""
        has_others = not self.image.brokers.keys() <= {self.node_id}
        directory_id = decode_uuid(self.store.directory_id) if has_others else NO_ID
        return self.controller.register_broker(
            self.node_id,
            self.new_id(),
            host=self.address[0],
            port=self.address[1],
            rack=self.settings.rack or None,
            now_ms=self.clock.now_ms(),
            directory_id=directory_id,
            is_fenced=has_others,  # until its partitions are open
        )

    def _take_part(self) -> None:
        """Begins the work of a member of the cluster, as far as there is any."""
        bootstrap = [parse_address(each) for each in self.settings.join]
        self.quorum.start(
            self.peers,
            cluster_id=self.cluster_id,
            address=self.address,
            address_of=self.address_of,
            bootstrap=bootstrap,
        )
        self._on_role()
        if self._follower is None:
            self._follower = asyncio.get_running_loop().create_task(self._follow())

    def _on_role(self) -> None:
        self.replicas.has_failed.set()
        if self.address[0]:
            self.active_controller.on_role()

    async def _follow(self) -> None:
        """Applies what other controllers have decided."""
        while True:
            await self._committed.wait()
            self._committed.clear()
            try:
                await self.metadata.catch_up()
            except HeadwaterError as error:
                logger.error("the cluster's metadata cannot be applied: %s", error)
                await asyncio.sleep(1.0)
                self._committed.set()

    def _apply(self, changes: MetadataChanges) -> Coroutine[None, None, None]:
        if changes.has_other_acls and self.authorizer is not None:
            self.authorizer.use(self.image.acls.values())
        if changes.has_other_quotas:
            self.quotas.use(self.image.quotas)
        if 0 <= self.quorum.quorum.voters.latest_offset < self.quorum.high_watermark:
            self.store.note_others(not self.quorum.is_alone)  # it is committed who votes
        self.member.on_metadata()
        self.active_controller.on_metadata()
        return self.replicas.apply(changes)

    @property
    def unserved(self) -> Sequence[TopicPartition]:
        """Returns the partitions that should be served here and are not, because the disk failed or
        cannot open them."""
        return self.replicas.unserved

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Returns the offline partitions with the disk's reason. One that is still being recovered
        has none yet."""
        reasons = {at: self.why_unserved(*at) for at in self.unserved}
        return {at: reason for at, reason in reasons.items() if reason}

    def why_unserved(self, topic: str | bytes, index: int) -> str | None:
        """Returns the disk's last error about a partition that should be served here."""
        return self.replicas.why_unserved(topic, index)

    def note_failure(self, at: TopicPartition, error: Exception) -> None:
        """Logs a failure, once as long as it stays the same."""
        self.replicas.note_failure(at, error)

    async def take_back(self, failed: Partition, log: PartitionLog) -> None:
        """Replaces a failed partition by the newly opened one."""
        if failed.topic == METADATA_TOPIC:
            self.quorum.abandon()
            await self.metadata.go_on_with(self._enter_metadata(log))
            self._take_part()
            if self.quorum.is_alone:
                await self.metadata.settle()
        else:
            at = TopicPartition(failed.topic, failed.index)
            self.replicas.settle(at, instead_of=failed)
        failed.wake()

    async def finish_recovery(self, partition: Partition) -> None:
        """Serves the partition once the coordinators have loaded it."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.on_recovered(partition)
        if not partition.is_offline:
            partition.begin_epoch()
            self.replicas.forget_failure(partition)

    async def finish_transactions(self) -> None:
        """Ends transactions that waited for a partition that is back or deleted."""
        assert self.coordination is not None, "the broker is open"
        await self.coordination.finish_transactions()

    def _enter_metadata(self, log: PartitionLog) -> MetadataStateLog:
        try:
            quorum = self._new_quorum(log)
        except VoteLost as error:
            self.store.renew_directory_id()
            logger.warning("%s; this node votes and is in sync again as a new one", error)
            write_quorum_state(self.store.files, log.directory, ElectionState())
            quorum = self._new_quorum(log)
        self.quorum = quorum
        quorum.on_role = self._on_role
        quorum.on_doubt_ended = lambda: self.store.forget_loss(METADATA_AT)
        if quorum.is_alone:
            self.store.forget_loss(METADATA_AT)
        quorum.install_snapshot = self._install_snapshot
        quorum.on_commit = lambda: None if quorum.is_alone else self._committed.set()
        partition = self.replicas.add(Partition(METADATA_ID, log, quorum, self.committer))
        quorum.attach(partition)
        return MetadataStateLog(partition, quorum, self.clock)

    async def _install_snapshot(self, data: bytes) -> None:
        """The snapshot is whole on disk before our log is dropped: a start finds one of the two."""
        snapshot = decode_snapshot(data)

        def install() -> None:
            self.snapshots.put(snapshot, data)
            self.quorum.on_snapshot(snapshot)

        await self.metadata.take_snapshot(snapshot, install)

    def _new_quorum(self, log: PartitionLog) -> MetadataQuorum:
        snapshot = self.snapshots.newest_head()
        if snapshot is not None and snapshot.voters and snapshot.end_offset > log.end_offset:
            log.start_over(snapshot.end_offset)  # a crash came between it and the log
        return MetadataQuorum(
            log,
            self.store.files,
            ReplicaKey(self.node_id, decode_uuid(self.store.directory_id)),
            clock=self.clock,
            random=self._random,
            snapshot=snapshot,
            is_founder=not self.store.has_joined,
            is_doubtful=METADATA_AT in self.store.losses,
        )

    def _after_round(self, partitions: Sequence[Partition]) -> None:
        online = [each for each in partitions if not each.is_offline]
        self.store.write_recovery_points(each.log for each in online)
        replicated = [(each.log, each.high_watermark) for each in online if each.is_replicated]
        if replicated:
            self.store.write_high_watermarks(replicated)
        if len(online) < len(partitions):
            self.replicas.has_failed.set()

    def end_waits(self) -> None:
        """Answers waiting fetches with the records there are, so that a stop need not wait for
        them."""
        self.is_stopping = True
        for partition in self.replicas.all:
            partition.wake()
            partition.wake_followers()

    def partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition that is led here, for the coordinators, which write even if it is not
        served yet."""
        found = self.replicas.replica(topic, index)
        return found if found is not None and found.leader is not None else None

    def why_not_led(self, topic: str | bytes, index: int) -> ErrorCode:
        return self.replicas.why_not_led(topic, index)

    def topic_name(self, topic: str | bytes) -> str:
        """Returns the name of a topic that is led here."""
        if isinstance(topic, str):
            return topic
        # the metadata's own topic, which its records do not describe
        if topic == METADATA_ID.bytes:
            return METADATA_TOPIC
        known = self.image.topic_by_id(UUID(bytes=topic))
        assert known is not None, "a led partition's topic is known"
        return known.name

    def is_internal(self, topic: str | bytes) -> bool:
        name = topic if isinstance(topic, str) else self.topic_name(topic)
        return name in INTERNAL_TOPICS or name == METADATA_TOPIC

    async def create_unknown(self, name: str, *, may_create: bool) -> ErrorCode:
        """Creates an unknown topic that a client asked for; returns NONE once it exists."""
        if name == METADATA_TOPIC:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_wanted = name in INTERNAL_TOPICS or (may_create and self.settings.auto_create_topics)
        if not is_wanted:
            return self.controller.unknown_topic_code(name)
        wanted = self.controller.topic_on_demand(name)
        if not self.is_controller:
            return await create_elsewhere(self, wanted)
        created = await self.metadata.change(lambda: self.controller.create_topics([wanted]))
        outcome = created[name]
        if isinstance(outcome, Topic) or outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return ErrorCode.NONE
        return outcome.code

    async def allocate_producer_ids(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        answer = await self.member.ask_patiently(request)
        if answer.error_code != ErrorCode.NONE:
            code = ErrorCode(answer.error_code)
            raise LogUnavailable("the controller does not allocate producer ids", code=code.name)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    def abandon(self) -> None:
        """Gives up the directory without syncing, after a failed start."""
        self.proposals.stop()
        self.replicas.fetchers.stop()
        if self.coordination is not None:
            self.coordination.abandon()
        self._end_membership()
        self.quorum.abandon()
        self.store.close(clean=False)

    def _end_membership(self) -> None:
        self.losses.stop()
        self.active_controller.end()
        self.member.end()
        if self._follower is not None:
            self._follower.cancel()

    async def leave(self) -> None:
        """Hands over what this broker leads, while it still answers the others."""
        await self.member.leave()
        await self.quorum.hand_over()

    async def close(self) -> None:
        """Syncs and closes everything, and marks the stop as clean if nothing is left to do."""
        is_settled = False
        try:
            is_settled = await self._settle()
        finally:  # whatever was written is synced
            await self.committer.close()
            self.store.close(clean=is_settled, broker_epoch=self.broker_epoch)
            self.replicas.clear()

    async def _settle(self) -> bool:
        """Ends all work; returns whether nothing of it is left to the next start."""
        await self.leave()
        self._end_membership()
        self.quorum.abandon()
        await self.metadata.finish_applying()
        await self.proposals.close()
        await self.replicas.close()
        if self.coordination is not None:
            try:
                await self.coordination.close()
            except HeadwaterError as error:
                logger.error("transactions are left to the next start: %s", error)
                return False
        return True
