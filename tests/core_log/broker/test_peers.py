"""Brokers ask each other by id, wherever they listen now, and the controller wherever it is."""

from typing import Any

import pytest

from headwater.core_log.broker.peers import Address, Peers
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.links.connection import ConnectionRefused
from headwater.core_log.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.core_log.replication.voters import NOBODY
from tests.core_log.broker.in_memory import SERVED, started
from tests.fakes import MemoryFiles

HERE, ELSEWHERE = 1, 2


class Ways:
    """The ways from broker 1 to broker 2, which listens where the test says."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self.listening: Address = ("two", 9092)
        self.addresses: dict[int, Address] = {ELSEWHERE: self.listening}
        self.controller_id = NOBODY
        self.channels: list[InProcessChannel] = []
        self.peers = Peers(
            self.dial,
            address_of=self.addresses.get,
            controller_id=lambda: self.controller_id,
            answer_here=self.answer_here,
            node_id=HERE,
        )

    async def dial(self, host: str, port: int) -> InProcessChannel:
        if (host, port) != self.listening:
            raise ConnectionRefused("connection refused", host=host, port=port)
        self.channels.append(InProcessChannel(self._server, self.listening))
        return self.channels[-1]

    async def answer_here(self, request: Any) -> DescribeClusterResponse:
        return DescribeClusterResponse(cluster_id="here")


@pytest.fixture
async def ways() -> Ways:
    broker = await started(MemoryFiles())
    return Ways(BrokerServer(broker, SERVED))


async def test_brokers_ask_each_other_over_connections_that_stay(ways: Ways) -> None:
    for _ in range(2):
        answer = await ways.peers.ask(ELSEWHERE, DescribeClusterRequest())
        assert answer.controller_id == 1

    assert len(ways.channels) == 1


async def test_a_broker_that_moved_is_found_at_its_new_address(ways: Ways) -> None:
    await ways.peers.ask(ELSEWHERE, DescribeClusterRequest())
    ways.listening = ways.addresses[ELSEWHERE] = ("two", 9093)

    await ways.peers.ask(ELSEWHERE, DescribeClusterRequest())

    assert [each.is_open for each in ways.channels] == [False, True]


async def test_a_broker_that_is_gone_or_unknown_is_an_error(ways: Ways) -> None:
    ways.addresses[3] = ("three", 9092)
    with pytest.raises(ConnectionRefused):
        await ways.peers.ask(3, DescribeClusterRequest())
    with pytest.raises(LogUnavailable, match="address of a broker is not known"):
        await ways.peers.poll(4, DescribeClusterRequest())


async def test_the_controller_is_asked_here_or_elsewhere(ways: Ways) -> None:
    with pytest.raises(LogUnavailable, match="no controller"):
        await ways.peers.ask_controller(DescribeClusterRequest())

    ways.controller_id = HERE
    assert (await ways.peers.ask_controller(DescribeClusterRequest())).cluster_id == "here"

    ways.controller_id = ELSEWHERE
    assert (await ways.peers.ask_controller(DescribeClusterRequest())).cluster_id != "here"


async def test_closed_peers_leave_no_connection(ways: Ways) -> None:
    await ways.peers.ask(ELSEWHERE, DescribeClusterRequest())

    ways.peers.close()

    assert not ways.channels[0].is_open
