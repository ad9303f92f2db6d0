"""A broker's connections end with it, and what was under way is asked again where it can be."""

import asyncio

import pytest

from headwater.core_log.client import KafkaSettings
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.links.connection import Channel, ConnectionLost
from headwater.core_log.links.node import Node
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from tests.core_log.client.scripted_cluster import ScriptedCluster


class SlowWay:
    """Connects to a broker once it may."""

    def __init__(self) -> None:
        self.cluster, self.may = ScriptedCluster(), asyncio.Event()
        self.node = Node(
            "broker1", 9092, dial=self._dial, settings=KafkaSettings(bootstrap=["broker1:9092"])
        )

    async def _dial(self, host: str, port: int) -> Channel:
        await self.may.wait()
        return await self.cluster.dial(host, port)


async def test_a_request_to_a_broker_that_has_moved_may_be_repeated() -> None:
    way = SlowWay()
    asking = asyncio.ensure_future(way.node.ask(MetadataRequest()))
    await asyncio.sleep(0)

    way.node.leave()
    way.may.set()

    with pytest.raises(ConnectionLost, match="another address"):
        await asking
    assert not any(channel.is_open for channel in way.cluster.channels)


async def test_a_request_of_a_client_that_was_closed_fails() -> None:
    way = SlowWay()
    asking = asyncio.ensure_future(way.node.ask(MetadataRequest()))
    await asyncio.sleep(0)

    way.node.close()
    way.may.set()

    with pytest.raises(LogUnavailable, match="the log was closed"):
        await asking
