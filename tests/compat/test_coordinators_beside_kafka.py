"""In the same conversation, Apache Kafka's coordinators and ours say the same."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from struct import Struct
from typing import Any

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.coordination import TICK_S
from headwater.core_log.protocol import frames, message
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from tests.compat.coordinator_scenarios import STORIES, Story
from tests.compat.coordinator_session import TRIES, Conversation
from tests.contract.apache_kafka import run_apache_kafka
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles, SimulatedClock

LENGTH = Struct(">i")
COMING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TOPIC = CreatableTopic(name="t", num_partitions=1, replication_factor=1)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_apache_kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await started(MemoryFiles(), internal_partitions=2)
    await ask(broker, CreateTopicsRequest(topics=[TOPIC], timeout_ms=1000))
    for key_type in (0, 1):
        await ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x",)))
    yield broker
    await broker.close()


class Node:
    """A running Kafka, asked over a connection for each request, so that none waits for another."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")

    async def __call__(self, request: Any, version: int) -> Any:
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            writer.write(frames.encode_request(request, version, 1, "test"))
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            answer = memoryview(await reader.readexactly(size))
        finally:
            writer.close()
        _, body = frames.read_response_header(answer, type(request).api_key, version)
        return message.decode(message.response_type(type(request)), answer, version, body)

    async def prepare(self, name: str) -> None:
        """Coordinators are found a while after they were first asked for, and answer for a name
        once they have read what is stored of it. What is asked here changes nothing."""
        await self(CreateTopicsRequest(topics=[TOPIC], timeout_ms=10_000), 7)
        for key_type, request in (
            (0, HeartbeatRequest(group_id=name, member_id="nobody")),
            (1, EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0)),
        ):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
            await self._until_ready(find, 4, lambda said: said.coordinators[0].error_code)
            await self._until_ready(request, 3, lambda said: said.error_code)

    async def _until_ready(self, request: Any, version: int, code_of: Callable[[Any], int]) -> None:
        for _ in range(TRIES):
            if code_of(await self(request, version)) not in COMING:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("a coordinator is there by now")


@pytest.mark.kafka
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_kafka_and_headwater_say_the_same(story: Story, address: str, broker: Broker) -> None:
    async def wait_ms(ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def pass_time(ms: int) -> None:
        clock = broker.clock
        assert isinstance(clock, SimulatedClock)
        clock.advance(ms)
        await asyncio.sleep(4 * TICK_S)

    name, kafka = f"n{secrets.token_hex(6)}", Node(address)
    await kafka.prepare(name)
    theirs = Conversation(kafka, name, wait_ms)
    ours = Conversation(lambda request, version: ask(broker, request, version), name, pass_time)

    await story(theirs)
    await story(ours)

    assert ours.heard == theirs.heard
