"""The status of running pipelines: reports come in, one picture of them goes out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.reports import (
    VERIFY,
    DeadLettersAdded,
    GaugesRead,
    OffsetsApplied,
    ReadProgress,
    RemarksMade,
    Report,
    RowsMoved,
    StateChanged,
    TableKnown,
    TableVerified,
    TaskState,
)
from headwater.pipelines.terminal.output import format_count, printable
from headwater.pipelines.watching.task_status import SOURCE, Json, TableStatus, TaskStatus

SHAPE_VERSION = 1

WORST_FIRST = (
    TaskState.QUARANTINED,
    TaskState.RETRYING,
    TaskState.REREADING,
    TaskState.REBUILDING,
    TaskState.STARTING,
    TaskState.RUNNING,
    TaskState.PAUSED,
    TaskState.DONE,
    TaskState.STOPPED,
)
"""A pipeline is in the first of these that one of its tasks is in."""


class StatusBoard:
    """Call it with every report; ask it for a `snapshot`. Nothing here waits or fails."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._pipelines: dict[str, dict[str, TaskStatus]] = {}
        self._ends: Mapping[str, int] = {}
        self._verified: dict[str, dict[str, TableVerified]] = {}
        self.log_problem: Callable[[], str] = str
        self.offline: Callable[[], Mapping[TopicPartition, str]] = dict
        """Partitions of the log that cannot be used, with the reason."""
        self.disk: Callable[[], tuple[int, int] | None] = lambda: None
        """Free bytes and size of the file system of the log, where this process has it."""
        self.is_stopping = False
        """Whether everything is about to stop because somebody stops this process."""
        self.shared: Callable[[Json], Json] | None = None
        """Adds what runs elsewhere to a picture of what runs here; None where all runs here."""

    def __call__(self, report: Report) -> None:
        if isinstance(report, TableKnown | TableVerified):
            self._know(report)
            return
        task = self._task(report.pipeline, report.task)
        match report:
            case StateChanged():
                task.change(report, now_ms=self._clock.now_ms())
            case RowsMoved():
                task.move(report, self._newest(report), monotonic_ms=self._clock.monotonic_ms())
                if report.task == SOURCE:
                    self._mark_behind(report)
            case ReadProgress():
                task.read(report, monotonic_ms=self._clock.monotonic_ms())
            case OffsetsApplied():
                task.stand(report, now_ms=self._clock.now_ms())
            case DeadLettersAdded():
                task.add_dead_letters(report)
            case GaugesRead():
                task.gauges[report.name] = report
            case RemarksMade():
                task.remark(report)

    def _know(self, report: TableKnown | TableVerified) -> None:
        has_source = self.shared is None or SOURCE in self._pipelines.get(report.pipeline, {})
        if isinstance(report, TableVerified):
            self._verified.setdefault(report.pipeline, {})[report.table] = report
            if not has_source:
                return  # its tables are known by the tasks that run here
        self._task(report.pipeline, SOURCE if has_source else report.task).know(report.table)

    def forget(self, pipeline: str) -> None:
        """A pipeline that was dropped, or taken out of the file."""
        self._pipelines.pop(pipeline, None)
        self._verified.pop(pipeline, None)

    def forget_task(self, pipeline: str, task: str) -> None:
        """A task that runs elsewhere now."""
        tasks = self._pipelines.get(pipeline, {})
        tasks.pop(task, None)
        if not tasks:
            self._pipelines.pop(pipeline, None)

    def partitions(self) -> frozenset[str]:
        """The `topic-partition`s at which sinks stand; `know_ends` wants to hear of them."""
        return frozenset(
            partition
            for tasks in self._pipelines.values()
            for name, task in tasks.items()
            if name != SOURCE
            for partition in task.positions
        )

    def know_ends(self, ends: Mapping[str, int]) -> None:
        """Where the log's partitions end by now, from which follows how many records a sink has
        still to apply."""
        self._ends = ends

    def pipelines(self) -> frozenset[str]:
        """Those that run here, or are shared with others."""
        return frozenset(self.snapshot()["pipelines"])

    def tasks(self, pipeline: str) -> Mapping[str, TaskStatus]:
        return self._pipelines.get(pipeline, {})

    def tables(self, pipeline: str) -> frozenset[str]:
        found = self.snapshot()["pipelines"].get(pipeline)
        return frozenset(() if found is None else found["tables"])

    @property
    def is_ready(self) -> bool:
        """Whether the log can be used and nobody stops this process."""
        return not self.is_stopping and not self.log_problem()

    def snapshot(self) -> Json:
        """Everything, as JSON; docs/status.md says what each field means."""
        own = self.own_snapshot()
        return own if self.shared is None else self.shared(own)

    def own_snapshot(self) -> Json:
        """The same of what runs here."""
        return {
            "version": SHAPE_VERSION,
            "at_ms": self._clock.now_ms(),
            "started_ms": self._started_ms,
            "is_stopping": self.is_stopping,
            "log_problem": self.log_problem(),
            "log_disk": self._disk(),
            "offline_partitions": {
                f"{topic}-{index}": reason
                for (topic, index), reason in sorted(self.offline().items())
            },
            "pipelines": {name: self._pipeline(name) for name in self._pipelines},
        }

    def _disk(self) -> Json | None:
        found = self.disk()
        return None if found is None else {"free_bytes": found[0], "size_bytes": found[1]}

    def _pipeline(self, pipeline: str) -> Json:
        tasks, verified = self._pipelines[pipeline], self._verified.get(pipeline, {})
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        worst = min(tasks.values(), key=lambda task: WORST_FIRST.index(task.state))
        by_task = {
            name: task.tables_json(self._ends, now_ms=now_ms, monotonic_ms=monotonic_ms)
            for name, task in tasks.items()
        }
        tables = dict.fromkeys(table for lines in by_task.values() for table in lines)
        return {
            "state": worst.state.value,
            "reason": worst.reason,
            "since_ms": worst.since_ms,
            "tasks": {
                name: task.json(by_task[name].values(), self._ends, now_ms=now_ms)
                for name, task in tasks.items()
            },
            "tables": {
                table: _table_json(
                    {task: by_task[task][table] for task in tasks if table in by_task[task]},
                    {name: task for name, task in tasks.items() if table in task.tables},
                    table,
                    monotonic_ms=monotonic_ms,
                )
                | {"verified": _verified_json(verified.get(table))}
                for table in tables
            },
        }

    def _task(self, pipeline: str, name: str) -> TaskStatus:
        return self._pipelines.setdefault(pipeline, {}).setdefault(name, TaskStatus())

    def _newest(self, moved: RowsMoved) -> int | None:
        """Commit time of what the source last put into the log for this table; None where it
        never did, as when a route has given the table another name."""
        source = self._pipelines[moved.pipeline].get(SOURCE)
        table = source.tables.get(moved.table) if source else None
        return table.committed_ms if table else None

    def _mark_behind(self, moved: RowsMoved) -> None:
        """From now on each sink is behind the source by what has just been put into the log."""
        for name, task in self._pipelines[moved.pipeline].items():
            if name in (SOURCE, VERIFY):
                continue
            if task.positions_ms is None:
                task.waiting_since_ms.setdefault(moved.table, moved.committed_ms)
            table = task.tables.get(moved.table)
            if table is None or table.committed_ms is None:
                continue
            if table.behind_since_ms is None and moved.committed_ms > table.committed_ms:
                table.behind_since_ms = moved.committed_ms


def _table_json(
    by_task: Mapping[str, Json], tasks: Mapping[str, TaskStatus], name: str, *, monotonic_ms: int
) -> Json:
    """One line of the screen: what a table does in all tasks together."""
    found = {task: each.tables[name] for task, each in tasks.items()}
    readings = [(task, table.reading) for task, table in found.items() if table.reading]
    shown = min(readings, key=lambda pair: pair[1].last.is_done, default=None)
    state, reason, since_ms = _table_state(name, found, tasks)
    sinks = [facts for task, facts in by_task.items() if task != SOURCE]
    lags = [each["lag_ms"] for each in sinks or by_task.values() if each["lag_ms"] is not None]
    entering = [by_task[SOURCE]] if SOURCE in by_task else sinks
    return {
        "state": state,
        "reason": reason,
        "since_ms": since_ms,
        "rows_per_s": max(each["rows_per_s"] for each in entering),
        "lag_ms": max(lags, default=None),
        "dead_letters": sum(table.dead_letters for table in found.values()),
        "dead_letter_problem": next(
            (table.problem for table in reversed(found.values()) if table.problem), ""
        ),
        "snapshot": shown and shown[1].json(shown[0], monotonic_ms=monotonic_ms),
        "tasks": by_task,
    }


def _verified_json(verified: TableVerified | None) -> Json | None:
    if verified is None:
        return None
    return {
        "at_ms": verified.at_ms,
        "is_equal": not verified.differing and not verified.problem,
        "differing": verified.differing,
        "rows": verified.rows,
        "sides": [side for side in verified.sides.split(",") if side],
        "problem": verified.problem,
    }


def _table_state(
    name: str, found: Mapping[str, TableStatus], tasks: Mapping[str, TaskStatus]
) -> tuple[str, str, int | None]:
    """Returns the state: a problem comes first, then what is being read, then what its tasks do."""
    task = min((tasks[name] for name in found), key=lambda each: WORST_FIRST.index(each.state))
    left_out = tasks[SOURCE].why_left_out(name) if SOURCE in tasks else ""
    own = [
        table
        for table in found.values()
        if table.state is not None and not (left_out and table.state is TaskState.REREADING)
    ]
    if own:
        worst = min(own, key=lambda table: WORST_FIRST.index(table.state or TaskState.RUNNING))
        assert worst.state is not None, "only tables with a state of their own were chosen"
        is_stuck = task.state in (TaskState.QUARANTINED, TaskState.RETRYING)
        if not (is_stuck and worst.state in (TaskState.REREADING, TaskState.REBUILDING)):
            return worst.state.value, worst.reason, worst.since_ms
    if task.state is not TaskState.RUNNING:
        return task.state.value, task.reason, task.since_ms
    if left_out:
        return LEFT_OUT, left_out, None
    for place, table in found.items():
        if table.reading and not table.reading.last.is_done:
            return ("snapshotting" if place == SOURCE else "replaying"), "", None
    return "streaming", "", None


SHOWN_MAX = 20
"""Tables that are named in one line; --json names all of them."""
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """One table, and what kept it from one target, or from all of them."""

    pipeline: str
    table: str
    """Empty where nothing is known of the tables of the task."""
    task: str
    state: str
    """The state of the task, or of the table in it; `left out` where the source does not capture
    it."""
    reason: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def find_undelivered(snapshot: Mapping[str, Any]) -> list[Undelivered]:
    """By a status snapshot of pipelines that were to come to their end."""
    return [
        each
        for name, pipeline in snapshot["pipelines"].items()
        for task, facts in pipeline["tasks"].items()
        if task != VERIFY
        for each in _of_task(name, task, facts, pipeline["tables"])
    ]


def _of_task(
    pipeline: str, task: str, facts: Mapping[str, Any], tables: Mapping[str, Any]
) -> Iterator[Undelivered]:
    for remark in facts["remarks"].values():
        for table in remark["left_out"]:
            reason = "; ".join(filter(None, (remark["problem"], remark["hint"])))
            yield Undelivered(pipeline, table, task, LEFT_OUT, reason)
    if facts["state"] != TaskState.DONE.value:
        for table in tables or ("",):
            yield Undelivered(pipeline, table, task, facts["state"], facts["reason"])
        return
    for table, line in tables.items():
        own = line["tasks"].get(task)
        if own is not None and own["state"] != TaskState.DONE.value:
            yield Undelivered(pipeline, table, task, own["state"], own["reason"])


def undelivered_lines(found: Sequence[Undelivered]) -> list[str]:
    """Returns the lines; tables with the same reason share one."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for each in found:
        key = (each.pipeline, each.task, each.state, each.reason)
        groups.setdefault(key, []).append(each.table)
    return [
        f"{printable(pipeline)}/{printable(task)}: {_name(names)} {state}"
        + (f": {printable(' '.join(reason.split()))}" if reason else "")
        for (pipeline, task, state, reason), names in groups.items()
    ]


def _name(names: Sequence[str]) -> str:
    known = [printable(name) for name in names if name]
    if not known:
        return "all tables"
    shown = ", ".join(known[:SHOWN_MAX])
    left = len(known) - SHOWN_MAX
    return shown + (f" and {format_count(left, 'more table')}" if left > 0 else "")
