"""A partition moves between three real brokers, ours or Apache Kafka's, no faster than its command
says, under writes, and although that command is interrupted."""

import asyncio
import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from tests.builders import batch
from tests.cluster.nodes import HeadwaterNodes, KafkaNodes, Nodes
from tests.cluster.scenario import Play
from tests.contract.apache_kafka import java
from tests.pipelines.run_process import end, running

APACHE_KAFKA = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.skipif("HEADWATER_KAFKA_JARS" not in os.environ, reason="needs Kafka's jars"),
]

AT = TopicPartition("t", 0)
BATCHES, BATCH_BYTES = 120, 100_000
RATE = 2_000_000
SLACK_BYTES = 3 * RATE
"""A rate is measured over seconds, so that one may begin with all of its bytes."""


async def write(log: KafkaLog, batches: int) -> None:
    """Returns once all are in sync."""
    for number in range(batches):
        await log.append(AT, Batch(batch(f"{number:0{BATCH_BYTES}}"), 1))


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
async def test_a_move_keeps_to_its_rate_and_goes_on_without_its_command(
    tmp_path: Path, kind: str
) -> None:
    nodes = nodes_of(kind, tmp_path)
    for node in nodes.addresses:
        nodes.start(node)
    log = KafkaLog(KafkaSettings(bootstrap=list(nodes.bootstrap)))
    address = ("--bootstrap", ",".join(nodes.bootstrap))
    command = ("cluster", "move", AT.topic, "--to", "1,2,3", "--rate", RATE, *address)
    try:
        await Play(nodes, Random(0)).wait_in_sync()
        kept = {"retention.ms": "-1"}
        await log.topics.create(TopicSettings(name=AT.topic, replication_factor=2, config=kept))
        await write(log, BATCHES)
        size = (await log.topics.sizes())[AT]

        begun_s = time.monotonic()
        with running(*command) as first:
            assert first.stderr is not None
            said = await asyncio.to_thread(first.stderr.readline)
            code, _, last = await asyncio.to_thread(end, first, signal.SIGINT)
        moves = await log.brokers.moves()
        await write(log, 10)
        with running("cluster", "status", *address) as status:
            shown, _ = await asyncio.to_thread(status.communicate)
        with running(*command) as second:
            await asyncio.to_thread(second.communicate)
        took_s = time.monotonic() - begun_s

        assert "0 of 1 partition(s) moved, 1 are copied to " in said and "left: t-0 " in said
        assert code == 128 + signal.SIGINT
        assert "moves that have begun go on; give the command again to follow them" in last
        assert [*moves] == [AT]
        assert "t-0 is being moved to 1 2 3: " in shown
        assert "t is copied at 1.9 MiB per second on 1 2 3; " in shown
        assert second.returncode == 0
        assert size <= took_s * RATE + SLACK_BYTES
        [partition] = (await log.topics.describe(AT.topic)).partitions
        assert set(partition.in_sync) == {1, 2, 3}
        assert (await log.throttles.topics([AT.topic]), await log.throttles.rates()) == ({}, {})
    finally:
        await log.close()
        nodes.end()
