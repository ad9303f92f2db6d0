"""Limits the share of a table's rows that a source may reject as single mistakes."""

from collections import deque
from collections.abc import Mapping

from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.reports import RemarksMade

EXHAUSTED = "dead letters"
"""The subject of the message."""


class RejectBudget:
    """The limit during one run of a source. A table beyond it stays reported, because its rows are
    missing."""

    def __init__(self, pipeline: str, task: str, stop_after: StopAfter) -> None:
        self._pipeline, self._task, self._stop_after = pipeline, task, stop_after
        self._budgets: dict[str, DeadLetterBudget] = {}
        self._exhausted: set[str] = set()

    def count(self, passed: Mapping[str, int], failed: Mapping[str, int]) -> RemarksMade | None:
        """Counts `passed` rows in the log and `failed` rows in the dead-letter topic; returns a
        message if another table is beyond the limit."""
        before = len(self._exhausted)
        for table in passed.keys() | failed.keys():
            if table not in self._budgets:
                self._budgets[table] = DeadLetterBudget(
                    failures=self._stop_after.failures, of_last=self._stop_after.of_last
                )
            lost = failed.get(table, 0)
            self._budgets[table].add(passed.get(table, 0) + lost, failed=lost)
            if self._budgets[table].is_exhausted:
                self._exhausted.add(table)
        return self._remark() if len(self._exhausted) > before else None

    def _remark(self) -> RemarksMade:
        names = sorted(self._exhausted)
        limit = self._stop_after
        return RemarksMade(
            self._pipeline,
            self._task,
            EXHAUSTED,
            f"{limit.failures} or more of {limit.of_last} rows are dead letters of the source: "
            f"{', '.join(names)}",
            f"headwater dlq ls {self._pipeline} shows why; correct the rows, or raise "
            "errors.dead_letter.stop_after in the file",
            tuple(names),
        )


class DeadLetterBudget:
    """Counts the rejected ones among the last records of one table."""

    def __init__(self, *, failures: int, of_last: int) -> None:
        self._failures_max, self._of_last = failures, of_last
        self._seen = 0
        self._failed: deque[tuple[int, int]] = deque()  # records seen, records failed

    def add(self, records: int, *, failed: int) -> None:
        """Adds `records` processed, `failed` of them rejected."""
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
