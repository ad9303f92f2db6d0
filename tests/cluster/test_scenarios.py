"""The same scenarios on clusters of different makes: whatever is killed, frozen, cut off or wiped,
nothing is lost, doubled, torn or invented, and replicas end equal."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.cluster.links import Links, can_have_namespaces
from tests.cluster.nodes import COUNT, HeadwaterNodes, KafkaNodes, Nodes
from tests.cluster.scenario import Play, Step, node_count, parse, scenarios
from tests.contract.apache_kafka import java

SEED = 19

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.long("compat"),
]

MakeNodes = Callable[[Links | None, int], Nodes]


@pytest.fixture(params=["headwater", pytest.param("apache kafka", marks=pytest.mark.kafka)])
async def make_nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[MakeNodes]:
    made = list[Nodes]()

    def make(links: Links | None, count: int) -> Nodes:
        if request.param == "headwater":
            made.append(HeadwaterNodes(tmp_path, links, count=count))
        else:
            program = java(os.environ["HEADWATER_KAFKA_JARS"])
            made.append(KafkaNodes(tmp_path, program, links, count=count))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.end()


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    if not can_have_namespaces():
        pytest.skip("network namespaces need root")
    links = Links(range(1, COUNT + 1))
    try:
        yield links
    finally:
        await links.close()


def stories(kind: str) -> Sequence[object]:
    return [pytest.param(parse(each.read_text()), id=each.stem) for each in scenarios(kind)]


@pytest.mark.parametrize("steps", stories("processes"))
async def test_a_cluster_keeps_its_promises(steps: Sequence[Step], make_nodes: MakeNodes) -> None:
    problems = await Play(make_nodes(None, node_count(steps)), Random(SEED)).play(steps)

    assert not problems, "\n".join(problems[:20])


@pytest.mark.parametrize("steps", stories("links"))
async def test_a_cluster_with_cut_links_keeps_its_promises(
    steps: Sequence[Step], links: Links, make_nodes: MakeNodes
) -> None:
    problems = await Play(make_nodes(links, COUNT), Random(SEED)).play(steps)

    assert not problems, "\n".join(problems[:20])
