"""How many records may be set aside before it must be the data, not the record, that is wrong."""

from collections import deque


class DeadLetterBudget:
    """Counts over the last so many records of one table, those set aside among them."""

    def __init__(self, *, failures: int, of_last: int) -> None:
        self._failures_max, self._of_last = failures, of_last
        self._seen = 0
        self._failed: deque[tuple[int, int]] = deque()  # how many had been seen, how many failed

    def add(self, records: int, *, failed: int) -> None:
        """`records` went by, `failed` of them were set aside."""
        self._seen += records
        if failed:
            self._failed.append((self._seen, failed))
        while self._failed and self._failed[0][0] <= self._seen - self._of_last:
            self._failed.popleft()

    @property
    def failures(self) -> int:
        return sum(failed for _, failed in self._failed)

    @property
    def is_exhausted(self) -> bool:
        return self.failures >= self._failures_max
