"""The metrics of running pipelines for Prometheus, each declared once with what it means."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headwater.pipelines.reports import TaskState

if TYPE_CHECKING:
    from prometheus_client import Metric

Snapshot = Mapping[str, Any]
"""The content of `StatusBoard.snapshot`."""


class MetricSample(NamedTuple):
    labels: tuple[str, ...]
    value: float | None
    """None where it is not known; it is then left out."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[Snapshot], Iterator[MetricSample]]


def _per_task(field: str) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for task, facts in found["tasks"].items():
                yield MetricSample((pipeline, task), facts[field])

    return read


def _per_table(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for table, line in found["tables"].items():
                for task, facts in line["tasks"].items():
                    yield MetricSample((pipeline, task, table), _scale(facts[field], scale))

    return read


def _snapshots(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for table, line in found["tables"].items():
                if (reading := line["snapshot"]) is not None:
                    value = _scale(reading[field], scale)
                    yield MetricSample((pipeline, reading["task"], table), value)

    return read


def _task_states(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        for task, facts in found["tasks"].items():
            for state in TASK_STATES:
                yield MetricSample(
                    (pipeline, task, state.value), float(facts["state"] == state.value)
                )


def _count_quarantined(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        states = [line["state"] for line in found["tables"].values()]
        yield MetricSample((pipeline,), float(states.count(TaskState.QUARANTINED.value)))


def _count_rereading(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        states = [line["state"] for line in found["tables"].values()]
        yield MetricSample(
            (pipeline,), float(sum(states.count(each.value) for each in TABLE_STATES))
        )


def _count_left_out(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        remarks = [
            remark for task in found["tasks"].values() for remark in task["remarks"].values()
        ]
        left_out = {table for remark in remarks for table in remark["left_out"]}
        yield MetricSample((pipeline,), len(left_out))


def _verified(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for table, line in found["tables"].items():
                if (verified := line["verified"]) is not None:
                    yield MetricSample((pipeline, table), _scale(float(verified[field]), scale))

    return read


def _offline(snapshot: Snapshot) -> Iterator[MetricSample]:
    for partition in snapshot["offline_partitions"]:
        yield MetricSample((*partition.rsplit("-", 1),), 1)


def _problem(snapshot: Snapshot) -> Iterator[MetricSample]:
    yield MetricSample((), float(bool(snapshot["log_problem"])))


def _disk(field: str) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        if (disk := snapshot["log_disk"]) is not None:
            yield MetricSample((), disk[field])

    return read


def _start(snapshot: Snapshot) -> Iterator[MetricSample]:
    yield MetricSample((), snapshot["started_ms"] / 1_000)


def _gauges(
    name: str, field: str, scale: float = 1
) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for task, facts in found["tasks"].items():
                if gauge := facts["gauges"].get(name):
                    yield MetricSample((pipeline, task), _scale(gauge[field], scale))

    return read


def _table_gauges(name: str, field: str) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for task, facts in found["tasks"].items():
                for gauge, figures in facts["gauges"].items():
                    kind, _, table = gauge.partition(" ")
                    if kind == name and table:
                        yield MetricSample((pipeline, task, table), figures[field])

    return read


def _scale(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


TABLE_STATES = (TaskState.REREADING, TaskState.REBUILDING)
"""States that only tables have."""
TASK_STATES = [state for state in TaskState if state not in TABLE_STATES]
TASK = ("pipeline", "task")
TABLE = ("pipeline", "task", "table")

METRICS = (
    MetricSpec(
        "headwater_start_timestamp_seconds",
        "gauge",
        (),
        "Start time of this process, in seconds since 1970.",
        _start,
    ),
    MetricSpec(
        "headwater_log_problem",
        "gauge",
        (),
        "1 while the log cannot be used: its disk refuses, or no broker of its cluster answers.",
        _problem,
    ),
    MetricSpec(
        "headwater_log_partition_offline",
        "gauge",
        ("topic", "partition"),
        "1 for each partition of the log that cannot be used because of its disk; the reason is in "
        "`headwater status`.",
        _offline,
    ),
    MetricSpec(
        "headwater_log_disk_free_bytes",
        "gauge",
        (),
        "Free space of the file system that holds the log.",
        _disk("free_bytes"),
    ),
    MetricSpec(
        "headwater_log_disk_size_bytes",
        "gauge",
        (),
        "Size of that file system.",
        _disk("size_bytes"),
    ),
    MetricSpec(
        "headwater_task_state",
        "gauge",
        (*TASK, "state"),
        "1 for the state of a source or a sink, 0 for every other state.",
        _task_states,
    ),
    MetricSpec(
        "headwater_task_retries_total",
        "counter",
        TASK,
        "Retries of a source or a sink after a failure.",
        _per_task("retries"),
    ),
    MetricSpec(
        "headwater_task_lag_records",
        "gauge",
        TASK,
        "Records of the log that a sink has not applied yet.",
        _per_task("lag_records"),
    ),
    MetricSpec(
        "headwater_rows_total",
        "counter",
        TABLE,
        "Changes that a source has written to the log, or a sink to its target.",
        _per_table("rows"),
    ),
    MetricSpec(
        "headwater_bytes_total",
        "counter",
        TABLE,
        "The size of those changes, encoded.",
        _per_table("bytes"),
    ),
    MetricSpec(
        "headwater_lag_seconds",
        "gauge",
        TABLE,
        "Time from the commit at the source to the delivery of a change; while changes wait, the "
        "age of the oldest; 0 if no change has come for a while.",
        _per_table("lag_ms", 0.001),
    ),
    MetricSpec(
        "headwater_last_commit_timestamp_seconds",
        "gauge",
        TABLE,
        "Source commit time of the newest delivered change, in seconds since 1970.",
        _per_table("committed_ms", 0.001),
    ),
    MetricSpec(
        "headwater_dead_letters_total",
        "counter",
        TABLE,
        "Records that went to the dead-letter topic.",
        _per_table("dead_letters"),
    ),
    MetricSpec(
        "headwater_quarantined_tables",
        "gauge",
        ("pipeline",),
        "Tables that are quarantined until they are resumed.",
        _count_quarantined,
    ),
    MetricSpec(
        "headwater_left_out_tables",
        "gauge",
        ("pipeline",),
        "Tables that the file names and that are not captured because of a problem.",
        _count_left_out,
    ),
    MetricSpec(
        "headwater_verified_timestamp_seconds",
        "gauge",
        ("pipeline", "table"),
        "Time of the last comparison of a table, in seconds since 1970.",
        _verified("at_ms", 0.001),
    ),
    MetricSpec(
        "headwater_verified_equal",
        "gauge",
        ("pipeline", "table"),
        "1 if everything was equal in that comparison, otherwise 0.",
        _verified("is_equal"),
    ),
    MetricSpec(
        "headwater_verify_due_timestamp_seconds",
        "gauge",
        TASK,
        "Time at which `verify:` of the file wants the next comparison, in seconds since 1970; one "
        "that failed is still due.",
        _gauges("verify_due_ms", "value", 0.001),
    ),
    MetricSpec(
        "headwater_rereading_tables",
        "gauge",
        ("pipeline",),
        "Tables that are read again at the source, or rebuilt in a target, for a new schema.",
        _count_rereading,
    ),
    MetricSpec(
        "headwater_retained_wal_bytes",
        "gauge",
        TASK,
        "Write-ahead log that a PostgreSQL server retains for the source's slot.",
        _gauges("retained_wal_bytes", "value"),
    ),
    MetricSpec(
        "headwater_retained_wal_limit_bytes",
        "gauge",
        TASK,
        "Limit of that write-ahead log in the source's settings, if there is one.",
        _gauges("retained_wal_bytes", "limit"),
    ),
    MetricSpec(
        "headwater_snapshot_ratio",
        "gauge",
        TABLE,
        "Read share of a table's existing rows, from 0 to 1, if known.",
        _snapshots("fraction"),
    ),
    MetricSpec(
        "headwater_snapshot_rows",
        "gauge",
        TABLE,
        "Existing rows of a table that have been read.",
        _snapshots("rows"),
    ),
    MetricSpec(
        "headwater_snapshot_remaining_seconds",
        "gauge",
        TABLE,
        "Estimated remaining time of a snapshot, if known.",
        _snapshots("eta_ms", 0.001),
    ),
    MetricSpec(
        "headwater_table_files",
        "gauge",
        TABLE,
        "Files of a lake table after its last commit.",
        _table_gauges("small_files", "limit"),
    ),
    MetricSpec(
        "headwater_table_small_files",
        "gauge",
        TABLE,
        "Small files of it that the next maintenance will compact.",
        _table_gauges("small_files", "value"),
    ),
)
"""Counters start at 0 with every process, as Prometheus expects."""


def exposition(snapshot: Snapshot) -> bytes:
    """Everything in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshot))
    return generate_latest(registry)


@dataclass(eq=False, frozen=True, slots=True)
class _Collector:
    """Prometheus' client asks it for what one snapshot says."""

    snapshot: Snapshot

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for spec in METRICS:
            family = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
            metric = family(spec.name, spec.meaning, labels=spec.labels)
            for labels, value in spec.read(self.snapshot):
                if value is not None:
                    metric.add_metric(labels, value)
            yield metric
