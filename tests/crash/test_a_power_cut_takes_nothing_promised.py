"""What was acknowledged as on disk, and whatever was readable, is there after the power is back."""

import pytest

from tests.crash.broker_faults import PowerCut, why_no_power_cuts
from tests.crash.broker_histories import live_through
from tests.crash.history import Plan

PLAN = Plan.from_environment("HEADWATER_POWER_CUTS", short=10, long=500)
WHY_NOT = why_no_power_cuts()


@pytest.mark.crash
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.parametrize("seed", PLAN.seeds(), ids=PLAN.names())
def test_a_power_cut_under_load_takes_nothing_that_was_on_disk_or_readable(seed: int) -> None:
    live_through(seed, PowerCut, crashes=PLAN.crashes_each)
