"""The metrics of running pipelines for Prometheus, each declared once with what it means."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headwater.pipelines.reports import TaskState

if TYPE_CHECKING:
    from prometheus_client import Metric

Snapshot = Mapping[str, Any]
"""What `StatusBoard.snapshot` says."""


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


def _per_unit(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for unit, facts in found["units"].items():
                yield MetricSample((pipeline, unit), _scale(facts[field], scale))

    return read


def _per_table(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for table, line in found["tables"].items():
                for unit, facts in line["units"].items():
                    yield MetricSample((pipeline, unit, table), _scale(facts[field], scale))

    return read


def _snapshots(field: str, scale: float = 1) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for table, line in found["tables"].items():
                if (reading := line["snapshot"]) is not None:
                    value = _scale(reading[field], scale)
                    yield MetricSample((pipeline, reading["unit"], table), value)

    return read


def _unit_states(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        for unit, facts in found["units"].items():
            for state in UNIT_STATES:
                yield MetricSample(
                    (pipeline, unit, state.value), float(facts["state"] == state.value)
                )


def _count_quarantined(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        states = [line["state"] for line in found["tables"].values()]
        yield MetricSample((pipeline,), float(states.count(TaskState.QUARANTINED.value)))


def _rereading(snapshot: Snapshot) -> Iterator[MetricSample]:
    for pipeline, found in snapshot["pipelines"].items():
        states = [line["state"] for line in found["tables"].values()]
        yield MetricSample(
            (pipeline,), float(sum(states.count(each.value) for each in TABLE_STATES))
        )


def _offline(snapshot: Snapshot) -> Iterator[MetricSample]:
    for partition, reason in snapshot["offline_partitions"].items():
        yield MetricSample((*partition.rsplit("-", 1), reason), 1)


def _start(snapshot: Snapshot) -> Iterator[MetricSample]:
    yield MetricSample((), snapshot["started_ms"] / 1_000)


def _gauges(name: str, field: str) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for unit, facts in found["units"].items():
                if gauge := facts["gauges"].get(name):
                    yield MetricSample((pipeline, unit), gauge[field])

    return read


def _table_gauges(name: str, field: str) -> Callable[[Snapshot], Iterator[MetricSample]]:
    def read(snapshot: Snapshot) -> Iterator[MetricSample]:
        for pipeline, found in snapshot["pipelines"].items():
            for unit, facts in found["units"].items():
                for gauge, figures in facts["gauges"].items():
                    kind, _, table = gauge.partition(" ")
                    if kind == name and table:
                        yield MetricSample((pipeline, unit, table), figures[field])

    return read


def _scale(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


TABLE_STATES = (TaskState.REREADING, TaskState.REBUILDING)
"""That only tables are in."""
UNIT_STATES = [state for state in TaskState if state not in TABLE_STATES]
UNIT = ("pipeline", "unit")
TABLE = ("pipeline", "unit", "table")

METRICS = (
    MetricSpec(
        "headwater_start_time_seconds",
        "gauge",
        (),
        "When this process was started, in seconds since 1970.",
        _start,
    ),
    MetricSpec(
        "headwater_log_partition_offline",
        "gauge",
        ("topic", "partition", "reason"),
        "1 for each partition of the log that its disk keeps from being used, with the reason.",
        _offline,
    ),
    MetricSpec(
        "headwater_unit_state",
        "gauge",
        (*UNIT, "state"),
        "1 for the state that a source or a sink is in, 0 for every other.",
        _unit_states,
    ),
    MetricSpec(
        "headwater_unit_retries_total",
        "counter",
        UNIT,
        "How often a source or a sink failed and was tried again.",
        _per_unit("retries"),
    ),
    MetricSpec(
        "headwater_unit_lag_records",
        "gauge",
        UNIT,
        "Records of the log that a sink has not applied yet.",
        _per_unit("lag_records"),
    ),
    MetricSpec(
        "headwater_rows_total",
        "counter",
        TABLE,
        "Changes that a source has put into the log, or a sink into its target.",
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
        "From the commit at the source until a change had gone through; while changes wait, the"
        " age of the oldest of them; 0 when nothing has come for a while.",
        _per_table("lag_ms", 0.001),
    ),
    MetricSpec(
        "headwater_last_commit_time_seconds",
        "gauge",
        TABLE,
        "Commit time at the source of the newest change that went through, in seconds since 1970.",
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
        "Tables that are set aside until somebody resumes them.",
        _count_quarantined,
    ),
    MetricSpec(
        "headwater_rereading_tables",
        "gauge",
        ("pipeline",),
        "Tables that are read again at the source, or made anew in a target, for a new form.",
        _rereading,
    ),
    MetricSpec(
        "headwater_retained_wal_bytes",
        "gauge",
        UNIT,
        "Write-ahead log that a PostgreSQL server keeps because of the source's slot.",
        _gauges("retained_wal_bytes", "value"),
    ),
    MetricSpec(
        "headwater_retained_wal_limit_bytes",
        "gauge",
        UNIT,
        "How much of it the source's settings allow, where they set a limit.",
        _gauges("retained_wal_bytes", "limit"),
    ),
    MetricSpec(
        "headwater_snapshot_fraction",
        "gauge",
        TABLE,
        "How much of a table's existing rows has been read, from 0 to 1, where that is known.",
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
        "How long the reading of existing rows will take yet, where that is known.",
        _snapshots("eta_ms", 0.001),
    ),
    MetricSpec(
        "headwater_table_files",
        "gauge",
        TABLE,
        "Files that a table of a lake is made of, as of its last commit.",
        _table_gauges("small_files", "limit"),
    ),
    MetricSpec(
        "headwater_table_small_files",
        "gauge",
        TABLE,
        "Those of them that had better be put together; maintenance does so when it is due.",
        _table_gauges("small_files", "value"),
    ),
)
"""What counts starts at 0 with every process, as Prometheus expects of counters."""


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
