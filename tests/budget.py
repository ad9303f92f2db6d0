"""How long tests may take: `make unit` has a minute, `make test` has minutes, and `make compat`,
`make sim` and `make crash` have hours."""

import os

BUDGET = os.environ.get("HEADWATER_BUDGET", "short")
IS_LONG = BUDGET == "long"
MARK_OF_TARGET = {"compat": "compat", "crash": "crash", "sim": "simulation"}
"""What each of these targets of the Makefile selects."""

PATIENCE_S = 120
"""Nothing that a test waits for takes as long, however busy the machine is."""
