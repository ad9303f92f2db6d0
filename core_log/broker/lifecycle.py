"""A whole broker in this process: opened, listening, looked after, and stopped cleanly."""

import os
import secrets
from random import Random, SystemRandom
from typing import Self

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.dispatch import load_handlers
from headwater.core_log.broker.periodic_tasks import PeriodicTasks
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.foundation.endpoint import Endpoint, encode_endpoint
from headwater.core_log.foundation.listen_address import parse_address, refuse_unsafe
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import Files, OsFiles
from headwater.core_log.storage.store import Store

DRAIN_S_MAX = 10.0


class RunningBroker:
    """Owns the data directory and the listener for as long as it runs."""

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
        """What a console of this owner wants to see from whoever asks it something."""

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
        and `command` are what others are told, see `Endpoint`."""
        clock, files, random = clock or SystemClock(), files or OsFiles(), random or SystemRandom()
        refuse_unsafe(parse_address(settings.listen)[0])
        store = Store.open(
            settings.data, files=files, clock=clock, random=random, node_id=settings.node_id
        )
        try:
            broker = Broker(settings, store, load_handlers(), clock=clock, random=random)
            server = BrokerServer(broker, broker.served)
            server.bind(settings.listen)
        except BaseException:
            store.close(clean=False)
            raise
        running = cls(broker, server, PeriodicTasks(broker), command=command)
        try:
            await broker.open(*server.address)
            running.write_endpoint(http)
            store.keep_reserve()
        except BaseException:
            server.stop_accepting()
            broker.abandon()
            raise
        server.start_accepting()
        running.housekeeping.start()
        return running

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the Kafka listener."""
        host, port = self.server.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def write_endpoint(self, http: str | None) -> None:
        """Where everybody else finds the one owner of this data directory (decision B1)."""
        endpoint = Endpoint(
            os.getpid(), self.endpoint, http=http, token=self.token, command=self._command
        )
        self.broker.store.write_endpoint(encode_endpoint(endpoint))

    async def stop(self) -> None:
        """Answers what has been asked, syncs everything and marks the stop as clean."""
        await self.housekeeping.stop()
        self.broker.store.remove_endpoint()
        self.broker.end_waits()
        await self.server.drain(DRAIN_S_MAX)
        await self.broker.close()
