"""Nodes of an older version are replaced one by one by today's, while clients write and read."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.cluster.nodes import HeadwaterNodes
from tests.cluster.scenario import Play, Step, parse, scenarios
from tests.cluster.test_scenarios import SEED

FORMER = os.environ.get("HEADWATER_FORMER", "")
"""A directory with the older code, such as a `git worktree`."""

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.skipif(not FORMER, reason="HEADWATER_FORMER names no older version"),
]


@pytest.mark.parametrize(
    "steps", [pytest.param(parse(each.read_text()), id=each.stem) for each in scenarios("upgrade")]
)
async def test_a_rolling_upgrade_keeps_the_promises(steps: Sequence[Step], tmp_path: Path) -> None:
    nodes = HeadwaterNodes(tmp_path, former=Path(FORMER))
    try:
        problems = await Play(nodes, Random(SEED)).play(steps)
    finally:
        nodes.end()

    assert not problems, "\n".join(problems[:20])
