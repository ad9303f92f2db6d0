"""confluent-kafka, aiokafka and kafka-python do their everyday work: write, read, administer."""

from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("stock-clients")
    process = BrokerProcess(directory / "data", directory / "broker.log", {})
    process.start()
    yield process
    process.stop()


def pairs() -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (each % 5), b"value %d" % each) for each in range(COUNT)]


def read_confluent(broker: BrokerProcess, topic: str, count: int, **options: Any) -> list[Any]:
    settings = {"bootstrap.servers": broker.address, "group.id": f"{topic}-readers"}
    consumer = Consumer(settings | {name.replace("_", "."): options[name] for name in options})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return [(each.key(), each.value()) for each in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_it_wrote(broker: BrokerProcess, codec: str) -> None:
    topic = f"confluent-{codec}"
    producer = Producer(
        {"bootstrap.servers": broker.address, "compression.type": codec, "linger.ms": 5}
        | {"enable.idempotence": True}
    )
    for key, value in pairs():
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0

    assert read_confluent(broker, topic, COUNT) == pairs()


def test_an_aborted_transaction_is_hidden_from_confluent_kafka(broker: BrokerProcess) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": "confluent", "linger.ms": 0}
    )
    producer.init_transactions(30)
    for value, finish in ((b"no", producer.abort_transaction), (b"yes", None)):
        producer.begin_transaction()
        producer.produce("confluent-transactions", value)
        producer.flush(30)
        (finish or producer.commit_transaction)(30)

    assert read_confluent(broker, "confluent-transactions", 1) == [(None, b"yes")]


def test_the_admin_client_of_confluent_kafka(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topic = NewTopic("administered", 2, 1, config={"retention.ms": "70000"})
    admin.create_topics([topic])["administered"].result(30)
    admin.create_partitions([NewPartitions("administered", 3)])["administered"].result(30)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "administered")
    config = admin.describe_configs([resource])[resource].result(30)

    assert len(admin.list_topics(timeout=30).topics["administered"].partitions) == 3
    assert config["retention.ms"].value == "70000"
    assert len(admin.describe_cluster().result(30).nodes) == 1
    admin.delete_topics(["administered"])["administered"].result(30)
    assert "administered" not in admin.list_topics(timeout=30).topics


async def test_aiokafka_writes_and_reads_in_a_group(broker: BrokerProcess) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.address, enable_idempotence=True)
    async with producer:
        for key, value in pairs():
            await producer.send("aiokafka", value, key, partition=0)
        await producer.flush()
    found: list[tuple[bytes, bytes]] = []
    for _ in range(2):
        consumer = aiokafka.AIOKafkaConsumer(
            "aiokafka",
            bootstrap_servers=broker.address,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=COUNT // 2,
        )
        async with consumer:
            half: list[tuple[bytes, bytes]] = []
            while len(half) < COUNT // 2:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    half += [(each.key, each.value) for each in records]
            await consumer.commit()
        found += half

    assert found == pairs()


async def test_an_aborted_transaction_is_hidden_from_aiokafka(broker: BrokerProcess) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.address, transactional_id="aiokafka"
    )
    async with producer:
        await producer.begin_transaction()
        await producer.send_and_wait("aiokafka-transactions", b"no")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("aiokafka-transactions", b"yes")
    consumer = aiokafka.AIOKafkaConsumer(
        "aiokafka-transactions",
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        assert (await consumer.getone()).value == b"yes"


async def test_aiokafka_moves_offsets_in_the_transaction_that_writes(broker: BrokerProcess) -> None:
    partition = aiokafka.TopicPartition("aiokafka-in", 0)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.address, transactional_id="aiokafka-moves"
    )
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.address, group_id="aiokafka-moved", enable_auto_commit=False
    )
    async with producer, consumer:
        async with producer.transaction():
            await producer.send_and_wait("aiokafka-in", b"made", partition=0)
        for offset, is_kept in ((7, False), (3, True)):
            await producer.begin_transaction()
            await producer.send_and_wait("aiokafka-out", b"moved")
            await producer.send_offsets_to_transaction({partition: offset}, "aiokafka-moved")
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
        consumer.assign([partition])

        assert await consumer.committed(partition) == 3
        assert await consumer.end_offsets([partition]) == {partition: 2}
        assert (await consumer.offsets_for_times({partition: 0}))[partition].offset == 0


async def test_the_admin_client_of_aiokafka(broker: BrokerProcess) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        made = AioTopic("aio-administered", 2, 1, topic_configs={"retention.ms": "70000"})
        await admin.create_topics([made])
        await admin.create_partitions({"aio-administered": AioPartitions(3)})
        asked = AioResource(ConfigResourceType.TOPIC, "aio-administered")
        [config] = await admin.describe_configs([asked])
        [described] = await admin.describe_topics(["aio-administered"])
        await admin.delete_topics(["aio-administered"])

        settings = {name: value for name, value, *_ in config.resources[0][4]}
        assert settings["retention.ms"] == "70000"
        assert len(described["partitions"]) == 3
        assert "aio-administered" not in await admin.list_topics()
        assert len((await admin.describe_cluster())["brokers"]) == 1
    finally:
        await admin.close()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(broker: BrokerProcess, codec: str) -> None:
    topic = f"kafka-python-{codec}"
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.address, compression_type=None if codec == "none" else codec
    )
    for key, value in pairs():
        producer.send(topic, value, key)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        metadata_max_age_ms=1_000,  # see FINDINGS.md, 9
    )

    found = [(each.key, each.value) for _, each in zip(range(COUNT), consumer, strict=False)]

    consumer.close()
    assert found == pairs()
