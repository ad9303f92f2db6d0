"""What holds for every test: how much Hypothesis tries, by the budget asked for."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("short", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("short"), max_examples=5_000)
settings.load_profile(os.environ.get("HEADWATER_BUDGET", "short"))
