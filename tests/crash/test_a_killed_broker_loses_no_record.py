"""A broker that is killed at any moment comes back with all it ever acknowledged or showed."""

import pytest

from tests.crash.broker_faults import Kill
from tests.crash.broker_histories import live_through
from tests.crash.history import Plan

PLAN = Plan.from_environment("HEADWATER_CRASHES", short=10, long=200)


@pytest.mark.crash
@pytest.mark.parametrize("seed", PLAN.seeds(), ids=PLAN.names())
def test_a_broker_killed_under_load_loses_repeats_and_tears_nothing(seed: int) -> None:
    live_through(seed, Kill, crashes=PLAN.crashes_each)
