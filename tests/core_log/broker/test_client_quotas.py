"""A client over its quota is told so and kept waiting, and nobody else is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.broker.quotas import ClientQuotas
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.connection import connect
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    QuotaAlteration,
    QuotaOperation,
)
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.security.principal import ANONYMOUS, CLUSTER, LOCAL, Principal
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles, SimulatedClock

BATCH = bytes(encode_batch([PlainRecord(None, b"x" * 2_000)]))
Link = Callable[..., Awaitable[Rpc]]


def quota(value: float | None, key: str, *parts: tuple[str, str | None]) -> Any:
    entity = [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in parts]
    op = QuotaOperation(key=key, value=value or 0.0, remove=value is None)
    return AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=[op])])


def produce(topic: str = "t", *, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=memoryview(BATCH))
    data = TopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[data])


def fetch(offset: int = 0, *, bytes_max: int = 1 << 20) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(max_bytes=bytes_max, topics=[FetchTopic(topic="t", partitions=[part])])


def topics(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    made = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=made)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", internal_partitions=1)
    broker = await RunningBroker.start(settings)
    await ask(broker.broker, topics("t"))
    yield broker
    await broker.stop()


@pytest.fixture
async def link(running: RunningBroker) -> AsyncIterator[Link]:
    links: list[Rpc] = []

    async def begin(client_id: str, user: Principal = ANONYMOUS, *, by_socket: bool = True) -> Rpc:
        server = running.server
        if by_socket:
            channel: Any = await connect(*server.address, response_bytes_max=1 << 24)
        else:
            channel = InProcessChannel(server, server.address)
            channel.principal = user
        made = Rpc(channel, KafkaSettings(bootstrap=["127.0.0.1:1"], client_id=client_id))
        await made.agree()
        links.append(made)
        return made

    yield begin
    for each in links:
        each.close()


async def test_a_producer_over_its_quota_is_told_and_not_listened_to(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1.0, "producer_byte_rate", ("client-id", "etl")))
    etl, other = await link("etl"), await link("other")

    told = await etl.ask(produce(), version_max=12)
    waiting = asyncio.ensure_future(etl.ask(MetadataRequest()))
    others = await other.ask(produce(), version_max=12)

    assert told.responses[0].partition_responses[0].error_code == 0
    assert told.throttle_time_ms > 1_000_000
    assert others.throttle_time_ms == 0
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("by_socket", [True, False])
async def test_requests_that_a_producer_has_sent_ahead_wait_too(
    running: RunningBroker, link: Link, by_socket: bool
) -> None:
    await ask(running.broker, quota(1.0, "producer_byte_rate", ("client-id", "etl")))
    etl, other = await link("etl", by_socket=by_socket), await link("other")

    sent = [asyncio.ensure_future(etl.ask(produce(), version_max=12)) for _ in range(3)]
    told = await sent[0]
    others = await other.ask(produce(), version_max=12)

    assert told.throttle_time_ms > 1_000_000
    assert others.responses[0].partition_responses[0].base_offset == 1
    assert not sent[1].done() and not sent[2].done()
    for each in sent:
        each.cancel()


@pytest.mark.slow
async def test_a_producer_goes_on_after_its_wait(running: RunningBroker, link: Link) -> None:
    value = float(len(BATCH) // 10)
    await ask(running.broker, quota(value, "producer_byte_rate", ("client-id", "etl")))
    etl = await link("etl")

    told = [await etl.ask(produce(), version_max=12) for _ in range(2)]

    assert told[0].throttle_time_ms > 0
    assert told[1].responses[0].partition_responses[0].error_code == 0


async def test_an_unanswered_producer_is_not_listened_to(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1.0, "producer_byte_rate", ("client-id", "etl")))
    etl, other = await link("etl"), await link("other")

    etl.tell(produce(acks=0), version_max=12)
    waiting = asyncio.ensure_future(etl.ask(MetadataRequest()))
    while running.broker.quotas.throttled_count == 0:
        await other.ask(MetadataRequest())

    await other.ask(MetadataRequest())
    assert not waiting.done()
    waiting.cancel()


async def test_a_consumer_over_its_quota_gets_an_empty_answer(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(250.0, "consumer_byte_rate", ("client-id", "etl")))
    etl, again, other = await link("etl"), await link("etl"), await link("other")
    await other.ask(produce(), version_max=12)
    await other.ask(produce(), version_max=12)

    first = await etl.ask(fetch(), version_max=12)
    second = await again.ask(fetch(), version_max=12)
    others = await other.ask(fetch(), version_max=12)

    records = first.responses[0].partitions[0].records
    assert records is not None and len(records) == len(BATCH), "an answer is as large as its quota"
    assert first.throttle_time_ms == 0
    assert (second.throttle_time_ms > 0, list(second.responses)) == (True, [])
    assert others.throttle_time_ms == 0


async def test_a_batch_that_is_too_large_for_its_quota_is_read_all_the_same(
    running: RunningBroker, link: Link
) -> None:
    """With Kafka its consumer waits for ever."""
    await ask(running.broker, quota(1.0, "consumer_byte_rate", ("client-id", "etl")))
    etl = await link("etl")
    await (await link("other")).ask(produce(), version_max=12)

    told = await etl.ask(fetch(), version_max=12)

    records = told.responses[0].partitions[0].records
    assert records is not None and len(records) == len(BATCH)
    assert told.throttle_time_ms > 1_000_000


@pytest.mark.slow
async def test_the_time_of_requests_counts_and_waits_a_second_at_most(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1e-9, "request_percentage", ("client-id", "etl")))

    told = [
        await (await link("etl")).ask(each, version_max=12)
        for each in (MetadataRequest(), produce(), fetch())
    ]

    assert [each.throttle_time_ms for each in told] == [1_000] * 3


async def test_brokers_and_our_own_commands_have_no_quotas(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1.0, "producer_byte_rate", ("user", None)))

    told = {}
    for user in (CLUSTER, LOCAL, Principal("alice")):
        asked = (await link("x", user, by_socket=False)).ask(produce(), version_max=12)
        told[user.name] = (await asked).throttle_time_ms > 0

    assert told == {"__cluster": False, "__local": False, "alice": True}


@pytest.mark.slow
async def test_topics_over_the_quota_are_refused_to_new_clients(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1.0, "controller_mutation_rate", ("client-id", "etl")))
    etl = await link("etl")

    told = await etl.ask(topics("a", partitions=500))
    over = await (await link("etl")).ask(topics("b"))
    more = CreatePartitionsTopic(name="t", count=2, assignments=None)
    grown = await (await link("etl")).ask(CreatePartitionsRequest(topics=[more]))
    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    deleted = await (await link("etl")).ask(doomed)
    others = await (await link("other")).ask(topics("b"))

    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert told.topics[0].error_code == 0, "a quota that is not used up is not in the way"
    assert told.throttle_time_ms == 0
    assert over.topics[0].error_code == refused
    assert over.throttle_time_ms > 400_000
    assert grown.results[0].error_code == refused
    assert deleted.responses[0].error_code == refused
    assert others.topics[0].error_code == 0


@pytest.mark.slow
async def test_topics_over_the_quota_make_older_clients_wait(
    running: RunningBroker, link: Link
) -> None:
    await ask(running.broker, quota(1.0, "controller_mutation_rate", ("client-id", "etl")))

    told = await (await link("etl")).ask(topics("a", partitions=500), version_max=5)
    again = await (await link("etl")).ask(topics("b"), version_max=5)

    assert [told.topics[0].error_code, again.topics[0].error_code] == [0, 0]
    assert told.throttle_time_ms > 400_000
    assert again.throttle_time_ms > told.throttle_time_ms - 100_000


@pytest.mark.slow
async def test_an_address_that_connects_too_often_is_not_served(
    running: RunningBroker, link: Link
) -> None:
    served = await link("before")
    await ask(running.broker, quota(0x7FFF_FFFF, "connection_creation_rate", ("ip", None)))
    await ask(running.broker, quota(1.0, "connection_creation_rate", ("ip", "127.0.0.1")))

    for _ in range(10):
        await link("within")
    reader, writer = await asyncio.open_connection(*running.server.address)
    after = await reader.read()

    assert after == b"", "it is closed without a word"
    assert (await served.ask(MetadataRequest())).topics is not None
    writer.close()


async def test_quotas_are_there_after_a_start_and_in_snapshots() -> None:
    files = MemoryFiles()
    broker = await started(files)
    await ask(broker, quota(5.0, "producer_byte_rate", ("user", "alice"), ("client-id", None)))
    await ask(broker, quota(6.0, "consumer_byte_rate", ("user", "alice")))
    await ask(broker, quota(None, "consumer_byte_rate", ("user", "alice")))
    known = dict(broker.image.quotas)
    image = type(broker.image)()
    image.replace(broker.image.records(), broker.image.end_offset)
    await broker.close()

    again = await started(files)

    assert known == {("alice", "", None): {"producer_byte_rate": 5.0}}
    assert again.image.quotas == image.quotas == known
    assert again.quotas.limits_clients
    await again.close()


async def test_a_client_in_a_process_waits_too(running: RunningBroker, link: Link) -> None:
    await ask(running.broker, quota(1.0, "producer_byte_rate", ("user", "alice")))
    alice = await link("x", Principal("alice"), by_socket=False)

    await alice.ask(produce(), version_max=12)
    waiting = asyncio.ensure_future(alice.ask(MetadataRequest()))
    await (await link("other")).ask(MetadataRequest())

    assert not waiting.done()
    waiting.cancel()


def test_clients_that_name_themselves_anew_take_little_memory() -> None:
    quotas = ClientQuotas(SimulatedClock(0))
    quotas.use({("", "", None): {"producer_byte_rate": 1.0}})  # type: ignore[dict-item]

    for nth in range(11_000):
        quotas.wait_ms(next(iter(quotas._tables)), "alice", str(nth), 1.0)

    assert len(quotas._rates) == 10_000
