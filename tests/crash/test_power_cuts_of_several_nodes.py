"""Nodes of a cluster lose their power in the same moment, and with it all that was not synced."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.disks import NodesOnDisks, cut_power
from tests.cluster.scenario import Play
from tests.crash.broker_faults import PowerCut, why_no_power_cuts
from tests.crash.history import Plan

PLAN = Plan.from_environment("HEADWATER_CLUSTER_POWER_CUTS", short=1, long=60)
WHY_NOT = why_no_power_cuts()


@pytest.fixture
def nodes(tmp_path: Path, seed: int) -> Iterator[NodesOnDisks]:
    nodes = NodesOnDisks(tmp_path, PowerCut, Random(seed))
    try:
        yield nodes
    finally:
        nodes.end()


@pytest.mark.crash
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.parametrize("seed", PLAN.seeds(), ids=PLAN.names())
async def test_power_cuts_of_two_and_three_nodes_at_once_take_nothing_acknowledged(
    seed: int, nodes: NodesOnDisks
) -> None:
    random = Random(seed)
    play = Play(nodes, random)

    async def cut() -> None:
        for _ in range(PLAN.crashes_each):
            await play.work(random.randint(1, 4))
            gone = random.sample([1, 2, 3], random.choice((2, 3)))
            cut_power(nodes, gone)
            random.shuffle(gone)
            for node in gone:
                nodes.start(node)
            await play.wait_in_sync()

    problems = await play.play_with(cut)

    assert not problems, "\n".join(problems[:20])
