"""When the next transaction of the log may begin: so far from the others, on average."""

from dataclasses import dataclass


@dataclass(slots=True)
class Spacing:
    """Counts by when the earlier ones were due. By when they began, one that came late would hold
    up the next, and that the one behind it: changes that come just as fast as they may go would
    wait for ever after one delay.
    """

    wait_ms: int
    due_ms: int = 0
    """Before this the next one waits."""

    def begun(self, now_ms: int) -> None:
        """In any stretch of time there are two more of them than `wait_ms` fits in, at most."""
        self.due_ms = max(self.due_ms, now_ms - self.wait_ms) + self.wait_ms

    def left_ms(self, now_ms: int) -> int:
        return self.due_ms - now_ms
