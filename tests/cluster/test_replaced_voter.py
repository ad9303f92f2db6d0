"""Four real brokers of which three vote: the fourth takes the place of one that stays away, so that
another one may go."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from tests.builders import batch
from tests.cluster.nodes import HeadwaterNodes
from tests.cluster.scenario import Play
from tests.pipelines.run_process import running

pytestmark = [pytest.mark.integration, pytest.mark.slow]
AT = TopicPartition("t", 0)
LOOK_S = 0.2


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[HeadwaterNodes]:
    made = HeadwaterNodes(tmp_path, count=4, settings=["replace_voters_after_ms=5s"])
    try:
        for node in made.addresses:
            made.start(node)
        yield made
    finally:
        made.end()


async def status(nodes: HeadwaterNodes) -> dict[str, Any]:
    with running("cluster", "status", "--json", "--bootstrap", ",".join(nodes.bootstrap)) as told:
        said, _ = await asyncio.to_thread(told.communicate)
    answer: dict[str, Any] = json.loads(said)
    return answer["data"] or {}


async def until_three_vote(nodes: HeadwaterNodes, *, without: int | None = None) -> list[int]:
    """Returns them, the one that leads first. Which ones is as a busy machine has it, unless one is
    down."""
    while True:
        nodes.check()
        votes = {each["node"]: each["vote"] for each in (await status(nodes)).get("nodes", ())}
        voting = sorted(node for node in votes if votes[node] in ("leader", "voter"))
        if len(voting) == 3 and without not in voting and "leader" in votes.values():
            return sorted(voting, key=lambda node: votes[node] != "leader")
        await asyncio.sleep(LOOK_S)


async def until_nobody_is_away(nodes: HeadwaterNodes) -> None:
    while True:
        told = (await status(nodes)).get("nodes", ())
        if told and all(each["address"] != "away" for each in told):
            return
        await asyncio.sleep(LOOK_S)


async def test_the_fourth_broker_votes_so_that_two_may_go_one_after_the_other(
    nodes: HeadwaterNodes,
) -> None:
    log = KafkaLog(KafkaSettings(bootstrap=list(nodes.bootstrap)), random=Random(1))
    try:
        await Play(nodes, Random(0)).wait_in_sync()
        _, first, _ = await until_three_vote(nodes)
        await log.topics.create(TopicSettings(name=AT.topic))

        nodes.kill(first)
        _, second, _ = await until_three_vote(nodes, without=first)
        await log.append(AT, Batch(batch("of three"), 1))
        nodes.kill(second)
        await until_three_vote(nodes, without=first)
        await log.topics.create(TopicSettings(name="decided", replication_factor=2))
        nodes.start(first)
        await until_three_vote(nodes, without=second)
        nodes.start(second)
        await until_nobody_is_away(nodes)
        await log.append(AT, Batch(batch("of all"), 1))

        await until_three_vote(nodes)
        said = f"in the place of node {first}, which is away"
        assert any(said in nodes.output(each).read_text() for each in nodes.addresses)
        assert (await log.bounds([AT]))[AT].end == 2
    finally:
        await log.close()
