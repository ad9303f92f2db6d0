"""A leader whose disk takes writes and returns from no sync is replaced, and clients go on."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.disks import HangingDisk, NodesOnDisks
from tests.cluster.scenario import Play
from tests.crash.broker_faults import why_no_power_cuts

WHY_NOT = why_no_power_cuts()
SEED = 19


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodesOnDisks]:
    nodes = NodesOnDisks(tmp_path, HangingDisk, Random(SEED))
    try:
        yield nodes
    finally:
        nodes.end()


@pytest.mark.crash
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
async def test_a_cluster_goes_on_while_the_disk_of_a_leader_hangs(nodes: NodesOnDisks) -> None:
    play = Play(nodes, Random(SEED))

    async def hang() -> None:
        for whom in ("leader of orders-0", "controller"):
            await play.work(3)
            disk = nodes.disks[await play.find(whom)]
            assert isinstance(disk, HangingDisk)
            disk.hang()
            try:
                await play.work(3)
            finally:
                disk.go_on()
            await play.wait_in_sync()

    problems = await play.play_with(hang)

    assert not problems, "\n".join(problems[:20])
