"""Replicas, the quorum and the controller do what their text scenarios say, step by step and effect
by effect."""

import os
from pathlib import Path

import pytest

from tests.core_log.replication.scenarios import replay

GOLDEN = Path(__file__).parents[2] / "golden"
SCENARIOS = [
    path
    for room in ("elections", "quorum", "replica")
    for path in sorted((GOLDEN / room).glob("*.txt"))
]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_scenario_plays_as_written(path: Path) -> None:
    """HEADWATER_GOLDEN=write writes the effects anew; the diff is then the review."""
    played = replay(path.read_text())

    if os.environ.get("HEADWATER_GOLDEN") == "write":
        path.write_text(played)
    assert played == path.read_text()
