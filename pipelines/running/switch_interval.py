"""How long a thread may keep the interpreter while the event loop waits for it."""

import sys

TURN_S = 0.0005
"""Python's own is ten times as long, and who waits for the disk or an answer waits so long again
and again while a thread loads something or works on columns."""


def take_short_turns() -> None:
    sys.setswitchinterval(TURN_S)
