"""When the next transaction of the log may begin: so far from the others, on average."""

from dataclasses import dataclass

AHEAD_MAX = 4
"""So many may begin before their time, and catch up with what was delayed."""


@dataclass(slots=True)
class CommitRate:
    """Counts by when the earlier ones were due. By when they began, one that came late would hold
    up the next, and that the one behind it: changes that come just as fast as they may go would
    wait for ever after one delay. So they would, each for what is left of a millisecond, after a
    delay as long as all that they may be ahead: disks, and clocks, are uneven by whole waits.
    """

    wait_ms: int
    due_ms: int = 0
    """Before this the next one waits."""

    def take_token(self, now_ms: int) -> None:
        """In any stretch of time there are `AHEAD_MAX` and one more of them than `wait_ms` fits in,
        at most, but for those that cannot wait as they are full. These are not added up: whoever
        comes after them waits once."""
        earliest_ms = now_ms - AHEAD_MAX * self.wait_ms
        self.due_ms = min(max(self.due_ms, earliest_ms), now_ms) + self.wait_ms

    def left_ms(self, now_ms: int) -> int:
        return self.due_ms - now_ms
