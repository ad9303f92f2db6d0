"""The log in this process: a broker of our own, reached by calls instead of connections."""

from typing import Self

from headwater.core_log.broker.in_process import InProcessChannel
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.kafka_log import dialling
from headwater.core_log.client.local_security import security_at
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.connection import Channel

UNKNOWN_TOPIC_FOR_MS = 200
"""Metadata in this process is hardly ever behind, so a missing topic is soon believed to be."""


class EmbeddedLog(KafkaLog):
    """Says and hears exactly what a client over the network would, so that there is one way to
    append and to read; only the way there is shorter. Others reach the same broker at `endpoint`.
    """

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self._connect = dialling(self._settings())
        super().__init__(self._settings(), dial=self._dial)

    @classmethod
    async def open(
        cls, settings: BrokerSettings, *, http: str | None = None, command: str | None = None
    ) -> Self:
        """Takes the data directory, or raises `DirectoryInUse`. `http` and `command` are what
        others are told, see `Endpoint`."""
        return cls(await RunningBroker.start(settings, http=http, command=command))

    def beside(self, **settings: object) -> KafkaLog:
        """Another client of this broker, just as near, with settings of its own."""
        return KafkaLog(self._settings().model_copy(update=settings), dial=self._dial)

    def _settings(self) -> KafkaSettings:
        return KafkaSettings(
            bootstrap=[self.endpoint],
            security=security_at(self.running.describe()),
            rack=self.running.broker.settings.rack,
            unknown_topic_for_ms=UNKNOWN_TOPIC_FOR_MS,
        )

    async def _dial(self, host: str, port: int) -> Channel:
        """The other brokers of a cluster are reached by connections."""
        server = self.running.server
        if self.running.broker.has_others and (host, port) != server.address:
            return await self._connect(host, port)
        return InProcessChannel(server, server.address)

    @property
    def endpoint(self) -> str:
        """HOST:PORT for everybody else."""
        return self.running.endpoint

    async def close(self) -> None:
        await super().close()
        await self.running.stop()
