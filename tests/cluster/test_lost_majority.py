"""Two of three disks are lost: the third broker becomes the only one, with every acknowledged
record, and two empty ones join it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from tests.cluster.nodes import COUNT, HeadwaterNodes
from tests.cluster.view import ClusterView
from tests.cluster.workload import settings_for
from tests.simulation.load import batch_of

AT = TopicPartition("orders", 0)
RECORDS = 200


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[HeadwaterNodes]:
    made = HeadwaterNodes(tmp_path)
    try:
        for node in made.addresses:
            made.start(node)
        yield made
    finally:
        made.end()


async def sound(nodes: HeadwaterNodes) -> None:
    view = ClusterView(nodes.addresses)
    while await view.out_of_sync(nodes.awake, COUNT):
        nodes.check()
        await asyncio.sleep(0.1)


def recover(directory: Path, *options: str) -> Any:
    command = [sys.executable, "-m", "headwater.pipelines.cli", "cluster", "recover"]
    done = subprocess.run(
        [*command, str(directory), "--json", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["data"]


async def values_in(log: KafkaLog) -> list[bytes]:
    """All records, from the first to the last that can be read."""
    bounds = (await log.bounds([AT]))[AT]
    found, offset = list[bytes](), bounds.start
    while offset < bounds.end:
        for part in await log.fetch({AT: offset}):
            columns = arrow_codec.decode(part.data, from_offset=offset, partition=AT)
            found += [each for each in columns.values.to_pylist() if each is not None]
            offset = part.next_offset
    return found


@pytest.mark.slow
async def test_the_last_broker_goes_on_alone_and_others_join_it(nodes: HeadwaterNodes) -> None:
    await sound(nodes)
    log = KafkaLog(settings_for(nodes.bootstrap), random=Random(1))
    await log.topics.create(TopicSettings(name=AT.topic, partitions=1))
    await sound(nodes)
    for number in range(RECORDS):
        await log.append(AT, batch_of([f"k={number}"], SystemClock().now_ms()))
    written = await values_in(log)
    await log.close()
    for node in nodes.awake:
        nodes.kill(node)
    for node in (2, 3):
        nodes.wipe(node)

    shown = recover(nodes.data(1))
    done = recover(nodes.data(1), "--unsafe")
    nodes.start(1)
    log = KafkaLog(settings_for(nodes.bootstrap[:1]), random=Random(2))
    alone = await values_in(log)
    await log.append(AT, batch_of(["k=more"], SystemClock().now_ms()))
    for node in (2, 3):
        nodes.start(node)
    await log.close()
    await sound(nodes)
    nodes.kill(1)
    log = KafkaLog(settings_for(nodes.bootstrap), random=Random(3))
    after = await values_in(log)
    await log.close()

    assert (shown["removed"], shown["behind"], shown["empty"]) == ([2, 3], [], [])
    assert shown | {"is_done": True} == done
    assert len(written) == RECORDS and alone == written
    assert after[:RECORDS] == written and len(after) == RECORDS + 1
