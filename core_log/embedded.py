"""The log in this process: a broker of our own, reached by calls instead of connections."""

from typing import Self

from core_log.broker.in_process import InProcessChannel
from core_log.broker.running import RunningBroker
from core_log.client import KafkaLog, KafkaSettings
from core_log.settings import BrokerSettings

UNKNOWN_TOPIC_FOR_MS = 200
"""Metadata in this process is hardly ever behind, so a missing topic is soon believed to be."""


class EmbeddedLog(KafkaLog):
    """Says and hears exactly what a client over the network would, so that there is one way to
    append and to read; only the way there is shorter. Others reach the same broker at `endpoint`.
    """

    def __init__(self, running: RunningBroker) -> None:
        self.running = running

        async def dial(host: str, port: int) -> InProcessChannel:
            return InProcessChannel(running.server)

        settings = KafkaSettings(
            bootstrap=[running.endpoint], unknown_topic_for_ms=UNKNOWN_TOPIC_FOR_MS
        )
        super().__init__(settings, dial=dial)

    @classmethod
    async def open(cls, settings: BrokerSettings) -> Self:
        """Takes the data directory, or raises `DirectoryInUse`."""
        return cls(await RunningBroker.start(settings))

    @property
    def endpoint(self) -> str:
        """HOST:PORT for everybody else."""
        return self.running.endpoint

    async def close(self) -> None:
        await super().close()
        await self.running.stop()
