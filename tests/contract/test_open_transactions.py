"""Open transactions can be seen: which there are, where they write, and since when."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headwater.core_log.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headwater.core_log.protocol.messages.list_transactions import ListTransactionsRequest
from tests.contract.foreign_topics import Cluster
from tests.crash.plain_client import Wire

T = TypeVar("T")
ONGOING, HOUR_MS = "Ongoing", 3_600_000


async def asked(cluster: Cluster, work: Callable[[Wire], T]) -> T:
    host, port = cluster.endpoint.rsplit(":", 1)

    def connected() -> T:
        with Wire((host, int(port))) as wire:
            return work(wire)

    return await asyncio.to_thread(connected)


async def opened(cluster: Cluster, topic: str) -> Producer:
    """A transaction of the topic's name, with two records in it."""

    def begin() -> Producer:
        producer = Producer({"bootstrap.servers": cluster.endpoint, "transactional.id": topic})
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in (b"one", b"two"):
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        return producer

    return await asyncio.to_thread(begin)


def listed(wire: Wire, name: str, *, version: int = 1, **filters: Any) -> list[tuple[int, str]]:
    answer = wire.ask(ListTransactionsRequest(**filters), version)
    return [
        (each.producer_id, each.transaction_state)
        for each in answer.transaction_states
        if each.transactional_id == name
    ]


async def test_an_open_transaction_is_listed_described_and_found_at_its_partition(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("open")
    await cluster.append(topic, (b"before", b"it"))
    producer = await opened(cluster, topic)

    def look(wire: Wire) -> None:
        [(producer_id, state)] = listed(wire, topic)
        assert state == ONGOING
        assert listed(wire, topic, version=0, state_filters=[ONGOING]) == [(producer_id, ONGOING)]
        assert listed(wire, topic, producer_id_filters=[producer_id + 1]) == []
        assert listed(wire, topic, duration_filter=HOUR_MS) == []
        for pattern, hits in ((f"{topic[:3]}.*", 1), (topic[:3], 0), ("", 1), (None, 1)):
            assert len(listed(wire, topic, version=2, transactional_id_pattern=pattern)) == hits
        wrong = wire.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        odd = wire.ask(ListTransactionsRequest(state_filters=["Odd"]), 1)
        assert (odd.unknown_state_filters, odd.transaction_states) == (("Odd",), ())
        names = [topic, "nobody", ""]
        found, *others = wire.ask(
            DescribeTransactionsRequest(transactional_ids=names), 0
        ).transaction_states
        assert (found.transaction_state, found.producer_id) == (ONGOING, producer_id)
        assert (found.transaction_timeout_ms, found.producer_epoch) == (60_000, 0)
        assert [(each.topic, list(each.partitions)) for each in found.topics] == [(topic, [0])]
        assert [each.error_code for each in others] == [
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
        ]
        asking = DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=[0, 7])]
        )
        here, missing = wire.ask(asking, 0).topics[0].partitions
        [writer] = here.active_producers
        assert (writer.producer_id, writer.producer_epoch) == (producer_id, 0)
        assert (writer.last_sequence, writer.current_txn_start_offset) == (1, 1)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    await asked(cluster, look)

    await asyncio.to_thread(producer.commit_transaction, 60)
    committed = await asked(cluster, lambda wire: listed(wire, topic))
    assert [state for _, state in committed] in (["CompleteCommit"], ["PrepareCommit"])


@pytest.mark.compat
async def test_kafka_transactions_of_apache_kafka_shows_what_is_open(cluster: Cluster) -> None:
    jars = os.environ.get("HEADWATER_KAFKA_JARS")
    if not jars:
        pytest.skip("Apache Kafka is not here: HEADWATER_KAFKA_JARS=$(scripts/fetch_kafka.sh)")
    topic = await cluster.topic("tool")
    producer = await opened(cluster, topic)

    def tool(*words: str) -> str:
        tool = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.TransactionsCommand"]
        command = [*tool, "--bootstrap-server", cluster.endpoint, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    ids = await asyncio.to_thread(tool, "list")
    one = await asyncio.to_thread(tool, "describe", "--transactional-id", topic)
    writers = await asyncio.to_thread(
        tool, "describe-producers", "--topic", topic, "--partition", "0"
    )
    hanging = await asyncio.to_thread(
        tool, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0"
    )

    assert topic in ids and ONGOING in ids
    assert ONGOING in one and f"{topic}-0" in one
    assert len(writers.splitlines()) == 2 and len(hanging.splitlines()) == 1
    await asyncio.to_thread(producer.abort_transaction, 60)
