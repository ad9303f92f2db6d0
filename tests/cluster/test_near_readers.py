"""A consumer of librdkafka with `client.rack` reads from the follower in its rack, and from the
leader when that one is gone; with Apache Kafka it is the same."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.nodes import QUICK, HeadwaterNodes, KafkaNodes, Nodes
from tests.contract.apache_kafka import java
from tests.pipelines.commands.test_run import until

pytestmark = pytest.mark.slow

RACKS = {1: "a", 2: "b", 3: "c"}
TOPIC, LEADER, NEAR = "orders", 1, 2
COMPAT = [pytest.mark.compat, pytest.mark.kafka]


@pytest.fixture(params=["headwater", pytest.param("apache kafka", marks=COMPAT)])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    made: Nodes
    if request.param == "headwater":
        made = HeadwaterNodes(tmp_path, racks=RACKS)
    else:
        jars = java(os.environ["HEADWATER_KAFKA_JARS"])
        made = KafkaNodes(tmp_path, jars, properties=QUICK, racks=RACKS)
    try:
        for node in made.addresses:
            made.start(node)
        yield made
    finally:
        made.end()


class Reader:
    """Reads the topic from its beginning, and knows which broker it reads from."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.values: list[bytes] = []
        self.broker = self.leader = -1
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.rack": rack,
            "group.id": "none",
            "enable.auto.commit": False,
            "statistics.interval.ms": 100,
            "stats_cb": self._on_statistics,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _on_statistics(self, text: str) -> None:
        partition = json.loads(text)["topics"].get(TOPIC, {"partitions": {}})["partitions"].get("0")
        if partition is not None:
            self.broker, self.leader = partition["broker"], partition["leader"]

    def has_read(self, count: int, *, from_broker: int) -> bool:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")
        return len(self.values) >= count and self.broker == from_broker

    def close(self) -> None:
        self._consumer.close()


def create(bootstrap: str) -> None:
    """The first node leads."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until(lambda: count_brokers(admin) == len(RACKS))
    topic = NewTopic(TOPIC, num_partitions=1, replica_assignment=[[LEADER, NEAR, 3]])
    admin.create_topics([topic])[TOPIC].result()


def count_brokers(admin: AdminClient) -> int:
    try:
        return len(admin.list_topics(timeout=5).brokers)
    except KafkaException:  # nobody answers yet
        return 0


def write(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for each in values:
        producer.produce(TOPIC, each)
    assert producer.flush(60) == 0


def test_a_consumer_reads_from_the_follower_in_its_rack_as_long_as_there_is_one(
    nodes: Nodes,
) -> None:
    bootstrap = ",".join(nodes.bootstrap)
    create(bootstrap)
    values = [b"%d" % number for number in range(30)]
    write(bootstrap, values[:10])
    reader = Reader(bootstrap, RACKS[NEAR])

    until(lambda: reader.has_read(10, from_broker=NEAR))
    assert reader.leader == LEADER
    write(bootstrap, values[10:20])
    until(lambda: reader.has_read(20, from_broker=NEAR))
    nodes.kill(NEAR)
    write(bootstrap, values[20:])
    until(lambda: reader.has_read(30, from_broker=LEADER))

    reader.close()
    assert reader.values == values
