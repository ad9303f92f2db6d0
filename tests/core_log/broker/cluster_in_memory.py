"""Several brokers of one cluster in one process, which reach each other without sockets."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.dispatch import ServedApi
from headwater.core_log.broker.peers import PeerSettings
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.connection import ConnectionRefused
from headwater.core_log.links.node import open_link
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.replication.features import FEATURES
from headwater.core_log.security.principal import LOCAL
from headwater.core_log.storage.store import Store
from tests.core_log.broker.in_memory import SERVED
from tests.fakes import FaultyFiles, MemoryFiles

PORT = 9092
WAIT_S = 30.0
"""Longer than anything takes on a busy machine: only a failure waits for it."""


class Cluster:
    """Brokers by node id; each keeps its files when it stops."""

    def __init__(self) -> None:
        self.files: dict[int, MemoryFiles | FaultyFiles] = {}
        self.brokers: dict[int, Broker] = {}
        self._servers: dict[int, BrokerServer] = {}
        self._channels: dict[int, list[InProcessChannel]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self.cluster_id: str | None = None
        self.ports: dict[int, int] = {}
        """Where brokers listen that do not at the usual port."""
        self.principal = LOCAL
        """Who brokers and clients are to each other."""

    async def dial(self, host: str, port: int) -> InProcessChannel:
        node_id = int(host.removeprefix("node-"))
        server = self._servers.get(node_id)
        if server is None or port != self.ports.get(node_id, PORT):
            raise ConnectionRefused("connection refused", host=host, port=port)
        channel = InProcessChannel(server, (host, port))
        channel.principal = self.principal
        self._channels.setdefault(node_id, []).append(channel)
        return channel

    def boot(
        self,
        node_id: int,
        *,
        join: bool | None = None,
        served: Mapping[int, ServedApi] = SERVED,
        is_older: bool = False,
        **settings: Any,
    ) -> Broker:
        """Starts a broker; the first begins the cluster, and all others join it. An older one does
        not say which version of the metadata it reads."""
        files = self.files.setdefault(node_id, MemoryFiles())
        joins = self.cluster_id is not None if join is None else join
        clock, random = SystemClock(), Random()
        store = Store.open(
            Path("/data"),
            files=files,
            clock=clock,
            random=random,
            node_id=node_id,
            cluster_id=self.cluster_id if joins else None,
        )
        self.cluster_id = self.cluster_id or store.cluster_id
        addresses = ["node-1:9092"] if joins else []
        chosen = BrokerSettings(node_id=node_id, join=addresses, internal_partitions=2, **settings)
        broker = Broker(chosen, store, served, clock=clock, random=random, dial=self.dial)
        if is_older:
            broker.supported_features = {name: (0, level) for name, level in FEATURES.items()}
        self.brokers[node_id] = broker
        self._servers[node_id] = BrokerServer(broker, served)
        self._opening[node_id] = asyncio.ensure_future(
            broker.open(f"node-{node_id}", self.ports.get(node_id, PORT))
        )
        return broker

    async def start(self, node_id: int, **settings: Any) -> Broker:
        """Returns once the broker is a live member."""
        broker = self.boot(node_id, **settings)
        async with asyncio.timeout(WAIT_S):
            await self._opening[node_id]
        return broker

    def kill(self, node_id: int) -> None:
        """As kill -9: nothing is said to anybody; files keep what was written."""
        broker = self.brokers.pop(node_id)
        self._opening.pop(node_id).cancel()
        del self._servers[node_id]
        self.break_connections(node_id)
        broker.abandon()
        files = self.files[node_id]
        if isinstance(files, MemoryFiles):
            files.after_kill()

    async def stop(self, node_id: int) -> None:
        """A clean stop."""
        broker = self.brokers.pop(node_id)
        broker.end_waits()
        await broker.close()
        del self._servers[node_id]
        self.break_connections(node_id)

    def break_connections(self, node_id: int) -> None:
        """Ends all to this broker."""
        for channel in self._channels.pop(node_id, []):
            channel.close()

    async def close(self) -> None:
        for node_id in list(self.brokers):
            self.kill(node_id)
        await asyncio.sleep(0)

    async def client_of(self, node_id: int) -> Rpc:
        """A client's connection to one broker."""
        settings = PeerSettings(request_wait_ms_max=int(WAIT_S * 1_000))
        port = self.ports.get(node_id, PORT)
        return await open_link(f"node-{node_id}", port, self.dial, settings)

    @property
    def controller(self) -> Broker | None:
        return next((each for each in self.brokers.values() if each.is_controller), None)

    async def until(self, condition: Any) -> None:
        """Waits until the brokers have come to something; fails if they never do."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.01)
