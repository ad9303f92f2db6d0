"""A transactional id does what its text scenarios say, step by step and effect by effect."""

import os
from pathlib import Path

import pytest

from tests.core_log.groups.transaction_scenarios import replay

SCENARIOS = Path(__file__).parents[2] / "golden" / "transaction"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_plays_as_written(path: Path) -> None:
    """HEADWATER_GOLDEN=write writes the effects anew; the diff is then the review."""
    played = replay(path.read_text())

    if os.environ.get("HEADWATER_GOLDEN") == "write":
        path.write_text(played)
    assert played == path.read_text()
