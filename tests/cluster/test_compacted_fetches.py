"""What compaction leaves on three brokers is read by librdkafka, from leader and followers, without
an answer that makes it enlarge its fetches: of these it gives up in the end."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.foreign_clients import QUIET
from tests.cluster.nodes import COUNT, HeadwaterNodes
from tests.cluster.test_near_readers import RACKS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, KEYS, SINGLY, TRANSACTIONS = "table", 7, 400, 100
LEFT_MAX = 60
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
ENLARGES, GIVES_UP = "Increasing max fetch bytes", "might be too large to fetch"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[HeadwaterNodes]:
    nodes = HeadwaterNodes(tmp_path, racks=RACKS, settings=["housekeeping_interval_ms=100"])
    try:
        for node in nodes.addresses:
            nodes.start(node)
        yield nodes
    finally:
        nodes.end()


class Remarks(logging.Handler):
    """What librdkafka says of its fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def about(self, *parts: str) -> list[str]:
        return [line for line in self.lines if any(part in line for part in parts)]


def write(settings: dict[str, Any]) -> dict[bytes, bytes]:
    """The newest value of each key: by single batches, and by transactions, of which a third is
    aborted."""
    table: dict[bytes, bytes] = {}
    single = Producer({**settings, "enable.idempotence": True})
    for number in range(SINGLY):
        key, value = b"%d" % (number % KEYS), b"single %d" % number
        single.produce(TOPIC, value, key, partition=0)
        assert single.flush() == 0
        table[key] = value
    transactional = Producer({**settings, "transactional.id": "t"})
    transactional.init_transactions()
    for number in range(TRANSACTIONS):
        key, value = b"%d" % (number % KEYS), b"transaction %d" % number
        transactional.begin_transaction()
        transactional.produce(TOPIC, value, key, partition=0)
        if number % 3:
            transactional.commit_transaction()
            table[key] = value
        else:
            transactional.flush()
            transactional.abort_transaction()
    single.produce(TOPIC, b"last", b"last", partition=0)
    assert single.flush() == 0
    return table | {b"last": b"last"}


def read(settings: dict[str, Any], rack: str, remarks: Remarks) -> list[tuple[bytes, bytes]]:
    """All records from the beginning, by a reader in the rack."""
    logger = logging.Logger(f"reader in {rack}", logging.DEBUG)
    logger.addHandler(remarks)
    consumer = Consumer(
        {**settings, "log_level": 7, "debug": "fetch,msg,consumer", "client.rack": rack,
         "group.id": "g", "enable.auto.commit": False, "enable.partition.eof": True},
        logger=logger,
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[bytes, bytes]] = []
    while True:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        assert error is None, error
        found.append((message.key() or b"", message.value() or b""))
    consumer.close()
    return found


def test_records_left_by_compaction_never_make_librdkafka_enlarge_its_fetches(
    nodes: HeadwaterNodes,
) -> None:
    settings: dict[str, Any] = {**QUIET, "bootstrap.servers": ",".join(nodes.bootstrap)}
    admin = AdminClient(settings)
    while len(admin.list_topics(timeout=-1).brokers) < COUNT:
        nodes.check()
    admin.create_topics([NewTopic(TOPIC, 1, COUNT, config=COMPACTED)])[TOPIC].result()
    table, remarks = write(settings), Remarks()

    for rack in RACKS.values():
        while len(found := read(settings, rack, remarks)) > LEFT_MAX:
            nodes.check()
        assert dict(found) == table

    assert remarks.about("Fetch"), "librdkafka speaks of its fetches"
    assert remarks.about(ENLARGES, GIVES_UP) == []
