"""The status of one task of a pipeline, a source or a sink, and of its tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.pipelines.reports import (
    DeadLettersAdded,
    GaugesRead,
    OffsetsApplied,
    ReadProgress,
    RemarksMade,
    RowsMoved,
    StateChanged,
    TaskState,
)
from headwater.pipelines.terminal.quantities import Rate

SOURCE = "source"

RATE_WINDOW_MS, READ_WINDOW_MS = 10_000, 30_000
POSITIONS_MAX = 1_000
"""Parts of a position kept per task; a source of a million files has as many."""

Json = dict[str, Any]


@dataclass(slots=True)
class TableProgress:
    """A snapshot, a replay or a rebuild of one table."""

    last: ReadProgress
    rate: Rate = field(default_factory=lambda: Rate(window_ms=READ_WINDOW_MS))

    def add(self, report: ReadProgress, *, monotonic_ms: int) -> None:
        more = _amount(report) - _amount(self.last)
        self.rate.add(max(more, 0), now_ms=monotonic_ms)
        self.last = report

    def json(self, task: str, *, monotonic_ms: int) -> Json:
        last, rate = self.last, self.rate.per_s(now_ms=monotonic_ms)
        expected, eta_ms, fraction = _expect(last), None, None
        if last.is_done:
            fraction, eta_ms = 1.0, 0
        elif expected:
            fraction = round(min(_amount(last) / expected, 0.999), 4)
            if rate:
                eta_ms = round(max(expected - _amount(last), 0) * 1_000 / rate)
        return {
            "task": task,
            "is_done": last.is_done,
            "fraction": fraction,
            "eta_ms": eta_ms,
            "rows": last.rows,
            "rows_expected": last.rows_expected,
            "bytes": last.bytes,
            "bytes_expected": last.bytes_expected,
        }


@dataclass(slots=True)
class TableStatus:
    """One table in one task."""

    state: TaskState | None = None
    """None as long as it does what its task does."""
    reason: str = ""
    since_ms: int | None = None
    rows: int = 0
    bytes: int = 0
    committed_ms: int | None = None
    moved_ms: int | None = None
    behind_since_ms: int | None = None
    """Commit time of the oldest change known to be in the log and not in the target."""
    dead_letters: int = 0
    problem: str = ""
    has_dead_letters: bool = False
    """Whether records of the slice that is being applied went to the dead letters."""
    reading: TableProgress | None = None
    row_rate: Rate = field(default_factory=lambda: Rate(window_ms=RATE_WINDOW_MS))
    byte_rate: Rate = field(default_factory=lambda: Rate(window_ms=RATE_WINDOW_MS))

    def lag_ms(
        self, task_state: TaskState, *, is_at_rest: bool, is_at_end: bool, now_ms: int
    ) -> int | None:
        """How old the oldest change is that has not passed; where everything known has, how long
        the last one took, and nothing once that was a while ago."""
        if self.committed_ms is None or self.moved_ms is None:
            return None
        waiting_since = None if is_at_end else self.behind_since_ms
        if waiting_since is None and task_state in (TaskState.RETRYING, TaskState.QUARANTINED):
            waiting_since = self.committed_ms
        if waiting_since is not None:
            return max(now_ms - waiting_since, 0)
        return 0 if is_at_rest else max(self.moved_ms - self.committed_ms, 0)

    def json(
        self, task_state: TaskState, *, lag_records: int | None, now_ms: int, monotonic_ms: int
    ) -> Json:
        rows_per_s = self.row_rate.per_s(now_ms=monotonic_ms)
        is_at_rest = not lag_records and not rows_per_s
        return {
            "state": (self.state or task_state).value,
            "reason": self.reason,
            "since_ms": self.since_ms,
            "rows": self.rows,
            "bytes": self.bytes,
            "rows_per_s": round(rows_per_s, 1),
            "bytes_per_s": round(self.byte_rate.per_s(now_ms=monotonic_ms), 1),
            "lag_ms": self.lag_ms(
                task_state, is_at_rest=is_at_rest, is_at_end=lag_records == 0, now_ms=now_ms
            ),
            "committed_ms": self.committed_ms,
            "moved_ms": self.moved_ms,
            "dead_letters": self.dead_letters,
        }


@dataclass(slots=True)
class TaskStatus:
    """A source or a sink, with its tables."""

    state: TaskState = TaskState.STARTING
    reason: str = ""
    since_ms: int | None = None
    retries: int = 0
    positions: dict[str, str] = field(default_factory=dict)
    positions_ms: int | None = None
    waiting_since_ms: dict[str, int] = field(default_factory=dict)
    """Commit times of the oldest change in the log, by table, for a sink that has not applied
    anything yet."""
    tables: dict[str, TableStatus] = field(default_factory=dict)
    gauges: dict[str, GaugesRead] = field(default_factory=dict)
    remarks: dict[str, RemarksMade] = field(default_factory=dict)
    """By what they are about."""

    def change(self, report: StateChanged, *, now_ms: int) -> None:
        if report.table:
            table = self._table(report.table)
            if table.state is not report.state or table.since_ms is None:
                table.since_ms = now_ms
                if report.state in (TaskState.REREADING, TaskState.REBUILDING):
                    table.reading = None  # what was read before says nothing of this one
            is_own = report.state is not TaskState.RUNNING
            if table.state is TaskState.REBUILDING and not is_own:
                table.behind_since_ms = None  # the new table has all that waited
                self.waiting_since_ms.pop(report.table, None)
            table.state = report.state if is_own else None
            table.reason = report.reason
            return
        if report.state is TaskState.STARTING:
            self.positions.clear()
            self.remarks.clear()
            for table in self.tables.values():  # what is still wrong will be said again
                table.state, table.reason, table.since_ms = None, "", None
        self.retries += report.state is TaskState.RETRYING
        self.state, self.reason, self.since_ms = report.state, report.reason, now_ms

    def know(self, table: str) -> None:
        """There is something to say of it, though nothing of it has moved since this began."""
        self._table(table)

    def move(self, report: RowsMoved, source_ms: int | None, *, monotonic_ms: int) -> None:
        table = self._table(report.table)
        table.rows += report.rows
        table.bytes += report.bytes
        table.row_rate.add(report.rows, now_ms=monotonic_ms)
        table.byte_rate.add(report.bytes, now_ms=monotonic_ms)
        table.committed_ms, table.moved_ms = report.committed_ms, report.moved_ms
        self.waiting_since_ms.clear()
        is_behind = report.task != SOURCE and (source_ms or 0) > report.committed_ms
        table.behind_since_ms = report.committed_ms if is_behind else None

    def read(self, report: ReadProgress, *, monotonic_ms: int) -> None:
        table = self._table(report.table)
        if table.reading is None or _amount(report) < _amount(table.reading.last):
            table.reading = TableProgress(report)  # the first, or one that began again
        table.reading.add(report, monotonic_ms=monotonic_ms)

    def stand(self, report: OffsetsApplied, *, now_ms: int) -> None:
        for part, position in report.positions.items():
            self.positions.pop(part, None)
            self.positions[part] = position
        while len(self.positions) > POSITIONS_MAX:
            del self.positions[next(iter(self.positions))]
        self.positions_ms = now_ms
        self.waiting_since_ms.clear()
        for table in self.tables.values():
            if table.has_dead_letters:  # what was set aside has passed with the rest of its slice
                table.has_dead_letters, table.behind_since_ms = False, None

    def add_dead_letters(self, report: DeadLettersAdded) -> None:
        table = self._table(report.table)
        table.dead_letters += report.records
        table.has_dead_letters = True
        table.problem = report.problem

    def remark(self, report: RemarksMade) -> None:
        self.remarks.pop(report.name, None)
        if report.problem:
            self.remarks[report.name] = report

    def why_left_out(self, table: str) -> str:
        """Why the source does not capture the table, or not all of its rows; empty if it does."""
        return next((each.problem for each in self.remarks.values() if table in each.left_out), "")

    def tables_json(
        self, ends: Mapping[str, int], *, now_ms: int, monotonic_ms: int
    ) -> dict[str, Json]:
        lag_records = self._lag_records(ends)
        return {
            name: table.json(
                self.state, lag_records=lag_records, now_ms=now_ms, monotonic_ms=monotonic_ms
            )
            for name, table in self.tables.items()
        }

    def json(self, tables: Collection[Json], ends: Mapping[str, int], *, now_ms: int) -> Json:
        """`tables` is what was just said of its tables."""
        lags = [each["lag_ms"] for each in tables if each["lag_ms"] is not None]
        if self.waiting_since_ms:
            lags.append(max(now_ms - min(self.waiting_since_ms.values()), 0))
        return {
            "state": self.state.value,
            "reason": self.reason,
            "since_ms": self.since_ms,
            "retries": self.retries,
            "rows": sum(each["rows"] for each in tables),
            "bytes": sum(each["bytes"] for each in tables),
            "rows_per_s": round(sum(each["rows_per_s"] for each in tables), 1),
            "bytes_per_s": round(sum(each["bytes_per_s"] for each in tables), 1),
            "lag_ms": max(lags, default=None),
            "lag_records": self._lag_records(ends),
            "dead_letters": sum(each["dead_letters"] for each in tables),
            "positions": dict(self.positions),
            "positions_ms": self.positions_ms,
            "gauges": {
                name: {"value": each.value, "limit": each.limit}
                for name, each in self.gauges.items()
            },
            "remarks": {
                name: {
                    "problem": each.problem,
                    "hint": each.hint,
                    "left_out": [*each.left_out],
                }
                for name, each in self.remarks.items()
            },
        }

    def _lag_records(self, ends: Mapping[str, int]) -> int | None:
        known = [
            records_behind(end=ends[partition], offset=int(offset))
            for partition, offset in self.positions.items()
            if partition in ends and offset.isdigit()
        ]
        return sum(known) if known else None

    def _table(self, name: str) -> TableStatus:
        return self.tables.setdefault(name, TableStatus())


def records_behind(*, end: int, offset: int) -> int:
    """Returns the records that a sink has still to apply, at most: each transaction ends with a
    marker that is no record, and a sink that has applied everything stands right before the last of
    them."""
    return max(end - offset - 1, 0)


def _amount(read: ReadProgress) -> int:
    """Bytes where their number is known beforehand, since rows are mostly an estimate."""
    return (read.bytes or 0) if read.bytes_expected else read.rows


def _expect(read: ReadProgress) -> int | None:
    return read.bytes_expected or read.rows_expected
