"""Moves records that can never be applied into the dead-letter topic."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.rows.codec import AT_HEADER
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    FailureStage,
    append_dead_letters,
)
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.reports import DeadLettersAdded, Reporter

ONE_BATCH = FetchLimit(bytes_max=1)
"""A fetch returns at least one batch, even above the limit."""


class RejectedRecords:
    """Remembers rejected records, so that the slice can be read again without them.

    Their dead letters are appended before the slice is applied, and again after a crash in between.
    A dead letter's key is its record's place, so the second replaces the first.
    """

    def __init__(
        self,
        log: Log,
        pipeline: str,
        task: str,
        *,
        stop_after: StopAfter,
        clock: Clock,
        report: Reporter,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`check` raises if the records are not to blame."""
        self._check = check
        self._log, self._pipeline, self._task = log, pipeline, task
        self._stop_after, self._clock, self._report = stop_after, clock, report
        self._skipped: dict[TopicPartition, set[int]] = {}
        self._budgets: dict[TopicPartition, tuple[DeadLetterBudget, int]] = {}

    def skipped_offsets(self) -> Mapping[TopicPartition, set[int]]:
        return self._skipped

    async def take(self, error: RecordsRejected, *, table: str) -> bool:
        """Returns false if too many of too few records failed: then the table is wrong, not the
        records."""
        if self._check is not None:
            await self._check()
        partition = TopicPartition(error.topic, error.partition)
        if self._is_exhausted(partition, sorted(error.reasons)):
            return False
        dead_letters = [
            await self._dead_letter(partition, offset, error, table=table)
            for offset in sorted(error.reasons)
        ]
        await append_dead_letters(
            self._log, self._pipeline, dead_letters, now_ms=self._clock.now_ms()
        )
        self._skipped.setdefault(partition, set()).update(error.reasons)
        newest = dead_letters[-1].error
        self._report(DeadLettersAdded(self._pipeline, self._task, table, len(dead_letters), newest))
        return True

    def _is_exhausted(self, partition: TopicPartition, offsets: list[int]) -> bool:
        """Estimates by offsets how many records were read in between."""
        budget, seen_to = self._budgets.get(
            partition,
            (
                DeadLetterBudget(
                    failures=self._stop_after.failures, of_last=self._stop_after.of_last
                ),
                offsets[0],
            ),
        )
        budget.add(max(offsets[-1] + 1 - seen_to, 0), failed=len(offsets))
        self._budgets[partition] = budget, max(seen_to, offsets[-1] + 1)
        return budget.is_exhausted

    async def _dead_letter(
        self, partition: TopicPartition, offset: int, error: RecordsRejected, *, table: str
    ) -> DeadLetter:
        fetched = await self._log.fetch(
            {partition: offset}, limit=ONE_BATCH, isolation=Isolation.COMMITTED
        )
        columns = arrow_codec.decode(fetched[0].data, from_offset=offset, partition=partition)
        assert columns.offsets[0] == offset, "a record that was just read is still there"
        pairs = header_lists(columns.headers[:1])[0].as_py()
        headers = tuple((pair["key"].decode(), pair["value"]) for pair in pairs)
        return DeadLetter(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            key=columns.keys[0].as_py(),
            value=columns.values[0].as_py(),
            headers=headers,
            stage=FailureStage.of(error),
            kind=type(error).__name__,
            error=error.reasons[offset],
            at=(dict(headers).get(AT_HEADER) or b"").decode(),
            table=table,
            task=self._task,
            topic_id=await self._log.topic_id(partition.topic),
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
