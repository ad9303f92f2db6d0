"""Each of three real brokers, ours or Apache Kafka's, holds a client to its quota by itself, and
the most specific quota of user and client id holds."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.foreign_clients import QUIET
from tests.cluster.nodes import PROJECT, HeadwaterNodes, KafkaNodes, Nodes
from tests.cluster.test_throttled_move import APACHE_KAFKA
from tests.contract.apache_kafka import java

TOPIC, BROKERS = "t", {1, 2, 3}
RATE, SIZE, COUNT = 100_000, 50_000, 40
WINDOWS_S = 11
"""A rate is measured over so many seconds, so that what it allows in them may come at once."""
SLACK_BYTES = 4 * SIZE
"""A request is taken before its client has to wait."""
POLL_S = 0.1
PASSWORD = "sesame-of-the-test"


@dataclass(frozen=True, slots=True)
class Use:
    """What a client has seen while it moved the same bytes on each of three brokers."""

    seconds: float
    throttled_by: set[int]

    @property
    def keeps_its_rate(self) -> bool:
        return RATE * (self.seconds + WINDOWS_S) + SLACK_BYTES >= COUNT * SIZE


class Throttles:
    def __init__(self) -> None:
        self.brokers = set[int]()

    def note(self, event: Any) -> None:
        if event.throttle_time > 0:
            self.brokers.add(event.broker_id)


def produce(settings: Mapping[str, Any]) -> Use:
    throttles, begun_s = Throttles(), time.monotonic()
    producer = Producer(
        {
            **QUIET,
            **settings,
            "throttle_cb": throttles.note,
            "batch.num.messages": 1,
            "linger.ms": 0,
        }
    )
    for _ in range(COUNT):
        for partition in range(len(BROKERS)):
            producer.produce(TOPIC, os.urandom(SIZE), partition=partition)
            producer.poll(0)
    while producer.flush(POLL_S):
        pass
    return Use(time.monotonic() - begun_s, throttles.brokers)


def consume(settings: Mapping[str, Any]) -> Use:
    throttles, begun_s = Throttles(), time.monotonic()
    limits = {"max.partition.fetch.bytes": SIZE, "queued.max.messages.kbytes": 1_000}
    consumer = Consumer(
        {**QUIET, **settings, **limits, "throttle_cb": throttles.note, "group.id": "g",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([ConfluentPartition(TOPIC, number, 0) for number in range(len(BROKERS))])
    left = dict.fromkeys(range(len(BROKERS)), COUNT)
    while any(count > 0 for count in left.values()):
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            partition = message.partition()
            assert partition is not None, "a message has a partition"
            left[partition] -= 1
    consumer.close()
    return Use(time.monotonic() - begun_s, throttles.brokers)


def headwater(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.pipelines.cli", *map(str, words)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def begin(nodes: Nodes, settings: Mapping[str, Any], where: Sequence[object]) -> None:
    """Returns once each broker leads a partition of the topic."""
    for node in nodes.addresses.keys() - set(nodes.awake):
        nodes.start(node)
    admin = AdminClient({**QUIET, **settings})
    while True:
        nodes.check()
        if len(admin.list_topics(timeout=-1).brokers) == len(BROKERS):
            break
        time.sleep(POLL_S)
    headwater("cluster", "status", "--wait", *where)
    made = admin.create_topics([NewTopic(TOPIC, len(BROKERS), len(BROKERS))])
    made[TOPIC].result()
    headwater("cluster", "status", "--wait", *where)
    partitions = admin.list_topics(TOPIC, timeout=-1).topics[TOPIC].partitions
    assert {each.leader for each in partitions.values()} == BROKERS


def nodes_of(kind: str, directory: Path) -> Nodes:
    if kind == "ours":
        return HeadwaterNodes(directory)
    return KafkaNodes(directory, java(os.environ["HEADWATER_KAFKA_JARS"]))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("ours", marks=[pytest.mark.integration, pytest.mark.slow]),
        pytest.param("kafka", marks=APACHE_KAFKA),
    ],
)
def test_a_client_id_keeps_its_rates_on_each_broker_and_others_go_on(
    tmp_path: Path, kind: str
) -> None:
    nodes = nodes_of(kind, tmp_path)
    bootstrap = ",".join(nodes.bootstrap)
    where = ("--bootstrap", bootstrap)
    limits = (f"producer_byte_rate={RATE}", f"consumer_byte_rate={RATE}")
    limited = {"bootstrap.servers": bootstrap, "client.id": "limited"}
    try:
        begin(nodes, limited, where)
        headwater("cluster", "quotas", "set", "--client-id", "limited", *limits, *where)

        produced, consumed = produce(limited), consume(limited)
        others = produce({**limited, "client.id": "free"})
        headwater("cluster", "quotas", "set", "--user", "ANONYMOUS", "--client-id", "limited",
                  f"producer_byte_rate={100 * RATE}", *where)  # fmt: skip
        allowed = produce(limited)
    finally:
        nodes.end()

    assert produced.keeps_its_rate and produced.throttled_by == BROKERS
    assert consumed.keeps_its_rate and consumed.throttled_by == BROKERS
    assert others.throttled_by == allowed.throttled_by == set()


@pytest.mark.long("compat")
def test_a_user_keeps_its_rates_on_each_broker_and_another_goes_on(tmp_path: Path) -> None:
    secret, password = tmp_path / "cluster.secret", tmp_path / "password"
    secret.write_text("s" * 40 + "\n")
    password.write_text(PASSWORD + "\n")
    super_users = "security.super_users=User:alice;User:bob"
    nodes = HeadwaterNodes(
        tmp_path, settings=["security.sasl=SCRAM-SHA-512", super_users], secret=secret
    )
    where = ("--data", nodes.data(1))
    limits = (f"producer_byte_rate={RATE}", f"consumer_byte_rate={RATE}")
    alice = {
        "bootstrap.servers": ",".join(nodes.bootstrap),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    try:
        nodes.start(1)
        while not (nodes.data(1) / "endpoint.json").exists():
            nodes.check()
            time.sleep(POLL_S)
        for user in ("alice", "bob"):
            headwater("cluster", "users", "add", user, "--password-file", password, *where)
        begin(nodes, alice, where)
        headwater("cluster", "quotas", "set", "--user", "alice", *limits, *where)

        produced, consumed = produce(alice), consume(alice)
        others = produce({**alice, "sasl.username": "bob"})
    finally:
        nodes.end()

    assert produced.keeps_its_rate and produced.throttled_by == BROKERS
    assert consumed.keeps_its_rate and consumed.throttled_by == BROKERS
    assert others.throttled_by == set()
