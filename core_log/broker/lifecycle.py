"""A whole broker in this process: start, listener, periodic tasks, and clean stop."""

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom
from typing import Self
from weakref import WeakKeyDictionary

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.cluster_member import describe_cluster, find_cluster_id
from headwater.core_log.broker.credentials import cluster_secret_of
from headwater.core_log.broker.dispatch import load_handlers
from headwater.core_log.broker.held_log import release
from headwater.core_log.broker.log_cleaner import Compact, LogCleaner
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.peers import Address, PeerSettings, dial_with
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.foundation.endpoint import (
    Endpoint,
    encode_endpoint,
    is_loopback,
    parse_address,
)
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.rpc import Dial
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.security.login import security_of
from headwater.core_log.storage.compaction import compact
from headwater.core_log.storage.files import Files, OsFiles
from headwater.core_log.storage.properties import META
from headwater.core_log.storage.store import Store

logger = logging.getLogger(__name__)
FOLLOWERS_EXPIRE_LATER_MS = 3_600_000
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
LOOK_S = 5.0
"""Interval of the check of partitions without a reported failure."""


class PeriodicTasks:
    """Three loops: a long compaction must not delay retention, and neither of them the recovery of
    a partition."""

    def __init__(self, broker: "Broker", compact: Compact = compact) -> None:
        self._broker = broker
        self.cleaner = LogCleaner(broker, compact)
        self.recovery = PartitionRecovery(broker)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        pause_ms = self._broker.settings.housekeeping_interval_ms
        create_task = asyncio.get_running_loop().create_task
        for work in (self.tidy, self.cleaner.clean_what_is_due):
            self._tasks.append(
                create_task(self._repeat(work, partial(asyncio.sleep, pause_ms / 1000)))
            )
        self._tasks.append(create_task(self._repeat(self.recovery.recover, self._until_failed)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _until_failed(self) -> None:
        """Returns at a failure; most are reported. While one is left, the partitions are checked
        again and again."""
        await asyncio.sleep(RECOVERY_INTERVAL_MS / 1000)
        if self.recovery.is_done:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._broker.replicas.has_failed.wait()
        self._broker.replicas.has_failed.clear()

    async def _repeat(
        self, work: Callable[[int], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await pause()
            try:
                await work(self._broker.clock.now_ms())
            # the latter because of missing files, for example
            except (HeadwaterError, OSError) as error:
                logger.error("a periodic task has failed: %s", error)

    async def tidy(self, now_ms: int) -> None:
        """Handles one partition after another, so that the loop is never blocked for long."""
        for partition in self._broker.replicas.all:
            if not partition.is_served:
                continue
            try:
                leads, log = partition.leader is not None, partition.log
                removal = log.apply_retention(now_ms, below=partition.high_watermark, leads=leads)
                if removal is not None:
                    await asyncio.to_thread(removal.run)
                # a leader forgets a producer first: its followers may lead next
                log.producers.expire(now_ms if leads else now_ms - FOLLOWERS_EXPIRE_LATER_MS)
            except (HeadwaterError, OSError) as error:
                logger.error("%s-%d: %s", partition.topic, partition.index, error)
            await asyncio.sleep(0)
        await self._broker.metadata.snapshot_if_grown(now_ms=now_ms)


DRAIN_S_MAX = 10.0


class RunningBroker:
    """Owns the data directory and the listener as long as it runs."""

    def __init__(
        self,
        broker: Broker,
        server: BrokerServer,
        housekeeping: PeriodicTasks,
        *,
        command: str | None = None,
    ) -> None:
        self.broker, self.server, self.housekeeping = broker, server, housekeeping
        self._command = command
        self.token = secrets.token_urlsafe(24)
        """Secret that a console of this owner expects in each request."""

    @classmethod
    async def start(
        cls,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        random: Random | None = None,
        http: str | None = None,
        command: str | None = None,
    ) -> Self:
        """Returns once every partition and coordinator is ready and the listener accepts. `http`
        and `command` are for other processes, see `Endpoint`."""
        clock, files, random = clock or SystemClock(), files or OsFiles(), random or SystemRandom()
        security_of(settings)
        advertised = advertised_address(settings)
        store = Store.open(
            settings.data,
            files=files,
            clock=clock,
            random=random,
            node_id=settings.node_id,
            cluster_id=await cluster_to_join(settings, files),
        )
        try:
            broker = Broker(
                settings,
                store,
                load_handlers(),
                clock=clock,
                random=random,
                dial=dial_with(settings.security.tls),
            )
            server = BrokerServer(broker, broker.served)
            broker.await_login = server.await_login
            broker.has_room_for = server.has_room_for
            server.bind(settings.listen)
        except BaseException:
            store.close(clean=False)
            raise
        running = cls(broker, server, PeriodicTasks(broker), command=command)
        try:
            release(files, settings.data)  # links of a backup that was killed
            if broker.needs_peers:
                server.start_accepting()
            await broker.open(*(advertised or server.address))
            running.write_endpoint(http)
            store.keep_reserve()
        except BaseException:
            server.stop_accepting()
            broker.abandon()
            raise
        if not server.is_accepting:
            server.start_accepting()
        running.housekeeping.start()
        return running

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the Kafka listener."""
        host, port = advertised_address(self.broker.settings) or self.server.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def _local_password(self) -> str | None:
        broker = self.broker
        return broker.credentials.local_password if broker.security.authenticates else None

    @property
    def _trusted_file(self) -> str | None:
        tls = self.broker.settings.security.tls
        return None if tls is None else str(tls.trusted_file.absolute())

    def write_endpoint(self, http: str | None, *, control: str | None = None) -> None:
        """Writes the file by which other processes find the owner of this data directory (decision
        B1)."""
        endpoint = self.describe(http, control=control)
        self.broker.store.write_endpoint(encode_endpoint(endpoint))

    def describe(self, http: str | None = None, *, control: str | None = None) -> Endpoint:
        """Returns how other processes of this machine find and speak to this broker."""
        return Endpoint(
            os.getpid(),
            self.endpoint,
            http=http,
            token=self.token,
            control=control,
            command=self._command,
            secret=self._local_password,
            ca_file=self._trusted_file,
        )

    async def stop(self) -> None:
        """Answers all received requests, syncs everything and marks the stop as clean."""
        await self.housekeeping.stop()
        self.broker.store.remove_endpoint()
        await self.broker.leave()
        self.broker.end_waits()
        await self.server.drain(DRAIN_S_MAX)
        await self.broker.close()


def advertised_address(settings: BrokerSettings) -> Address | None:
    """Returns the address that others are told; None for that of the listener."""
    if settings.advertise:
        host, port = parse_address(settings.advertise)
        if port == 0:
            raise ConfigError("the advertised address has no port", got=settings.advertise)
        return host, port
    if parse_address(settings.listen)[0] in EVERY_ADDRESS:
        raise ConfigError(
            "the listener takes every address, and none is advertised",
            hint="advertise HOST:PORT, as clients and other brokers reach it",
            listen=settings.listen,
        )
    return None


async def cluster_to_join(
    settings: BrokerSettings, files: Files, dial: Dial | None = None
) -> str | None:
    """Returns the id of the cluster that is to be joined, None without one. A directory that is a
    member already needs nobody else to begin."""
    is_fresh = not files.exists(settings.data / META)
    if settings.begin and not is_fresh:
        raise ConfigError(
            "the data directory holds a cluster already",
            hint="leave out --begin",
            data=str(settings.data),
        )
    if not settings.join:
        if is_fresh and not (settings.begin or is_loopback(parse_address(settings.listen)[0])):
            raise ConfigError(
                "an empty data directory does not begin a cluster beyond loopback by itself",
                hint="join HOST:PORT of the cluster; or --begin, once, for its first broker",
                data=str(settings.data),
            )
        return None
    if settings.fsync == "never":
        raise ConfigError(
            "a broker of a cluster must not run with fsync=never",
            hint="leave fsync out: what a cluster promises is on its disks",
        )
    addresses = [parse_address(each) for each in settings.join]
    dial = dial or dial_with(settings.security.tls)
    links = PeerSettings(cluster_secret_of(settings, files), settings.security.tls)
    if not is_fresh:
        found = await describe_cluster(dial, addresses, links)
        return None if found is None else found.cluster_id
    if settings.begin:
        if await describe_cluster(dial, addresses, links) is not None:
            raise ConfigError(
                "a broker of a cluster answers, which this one would not join",
                hint="leave out --begin",
                join=", ".join(settings.join),
            )
        return None
    return await find_cluster_id(dial, addresses, links, node_id=settings.node_id)


Beside = Callable[[RunningBroker], AbstractAsyncContextManager[None]]
"""Work that lasts as long as a broker."""


async def serve(settings: BrokerSettings, *, beside: Beside | None = None) -> None:
    """Runs until it is cancelled, then stops cleanly."""
    running = await RunningBroker.start(settings)
    logger.info("the log listens on %s, its data is in %s", running.endpoint, settings.data)
    try:
        async with beside(running) if beside else nullcontext():
            await asyncio.Event().wait()
    finally:
        logger.info("stopping: answering all received requests, then syncing")
        await running.stop()


RECOVERY_INTERVAL_MS = 250
PAUSE_MS_MAX = 30_000


@dataclass(slots=True)
class Pause:
    """The pause before the next attempt for a partition; it doubles each time."""

    until_ms: int
    length_ms: int


class PartitionRecovery:
    """Opens partitions again that the disk failed or could not open. A damaged partition is tried
    again, too, because its files may be restored."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._pauses: dict[TopicPartition, Pause] = {}
        self._failed_in = WeakKeyDictionary[Partition, int]()
        """The leader epochs in which partitions failed that have followers."""
        self._at_work = asyncio.Lock()

    @property
    def is_done(self) -> bool:
        """Whether the last attempt left no partition offline."""
        return not self._pauses

    async def recover(self, now_ms: int) -> None:
        """Tries every partition that is not served; the cluster's metadata comes first."""
        async with self._at_work:
            await self._recover(now_ms)

    async def _recover(self, now_ms: int) -> None:
        unserved = self._broker.unserved
        self._pauses = {at: each for at, each in self._pauses.items() if at in unserved}
        for at in unserved:
            pause = self._pauses.get(at)
            if pause is None or pause.until_ms <= now_ms:
                await self._try(at, now_ms)
        self._broker.losses.look()
        await self._broker.finish_transactions()
        self._broker.store.keep_reserve()

    async def _try(self, at: TopicPartition, now_ms: int) -> None:
        last = self._pauses.get(at)
        length_ms = min(last.length_ms * 2, PAUSE_MS_MAX) if last else RECOVERY_INTERVAL_MS
        self._pauses[at] = Pause(now_ms + length_ms, length_ms)
        try:
            await self._bring_back(at)
        except (OSError, HeadwaterError) as error:
            self._broker.note_failure(at, error)

    async def _bring_back(self, at: TopicPartition) -> None:
        replicas = self._broker.replicas
        partition = replicas.replica(*at)
        if partition is None:
            replicas.settle(at)
        elif partition.is_offline and not self._awaits_epoch(partition):
            await self._reopen(partition)
        partition = replicas.replica(*at)
        if partition is not None and partition.is_recovering:
            await self._broker.finish_recovery(partition)
        if partition is not None and partition.is_served:
            end_offset = partition.log.end_offset
            logger.warning("%s-%d is back, and goes on at offset %d", *at, end_offset)

    def _awaits_epoch(self, failed: Partition) -> bool:
        """Whether a leader must resign before its log is opened again: followers may have what it
        loses, and records in their place would have the same epoch."""
        leader = failed.leader
        if not isinstance(leader, Leader) or not failed.is_replicated:
            return False
        if leader.leader_epoch > self._failed_in.setdefault(failed, leader.leader_epoch):
            return False
        leader.resign()
        self._broker.proposals.add(failed)
        return True

    async def _reopen(self, failed: Partition) -> None:
        store = self._broker.store
        if failed.topic == METADATA_TOPIC:
            store.spend_reserve()  # nothing can be deleted to free space before it is back
        with store.renewing(failed.log) as renewal:
            await asyncio.to_thread(renewal.run)
            if failed.is_deleted:
                return
            log = store.reopen_partition(failed.topic, failed.index)
        await self._broker.take_back(failed, log)
