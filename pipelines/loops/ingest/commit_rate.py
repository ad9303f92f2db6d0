"""The rate limit of log transactions: a token bucket."""

from dataclasses import dataclass

AHEAD_MAX = 4
"""Transactions that may begin early, after a delay."""


@dataclass(slots=True)
class CommitRate:
    """A token bucket: at most one commit per `wait_ms` on average, bursts of `AHEAD_MAX` + 1.

    It counts by due times, not by start times: otherwise one late commit would delay all later
    ones, and changes at exactly the permitted rate would wait after every delay.
    """

    wait_ms: int
    due_ms: int = 0
    """Before this time the next transaction waits."""

    def take_token(self, now_ms: int) -> None:
        """Takes a token. Full transactions do not wait and use none; the next transaction waits
        once."""
        earliest_ms = now_ms - AHEAD_MAX * self.wait_ms
        self.due_ms = min(max(self.due_ms, earliest_ms), now_ms) + self.wait_ms

    def left_ms(self, now_ms: int) -> int:
        return self.due_ms - now_ms
