"""Reports of the loops while they run, for status, progress and metrics, and their form as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.foundation.errors import DecodeError

if TYPE_CHECKING:
    from headwater.core_log.foundation.clock import Clock
    from headwater.core_log.model.log import Log
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.journal.control import DesiredTaskState

VERIFY = "verify"
"""The task that compares, where `verify:` of the file wants it."""


class TaskState(Enum):
    """The state of a task (`source`, or a sink's name) or of one of its tables."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    QUARANTINED = "quarantined"
    STOPPED = "stopped"
    DONE = "done"
    REREADING = "re-reading"
    """A table's state: its rows may differ from the source's until they have been read again."""
    REBUILDING = "rebuilding"
    """A target table's state: it is made anew from the log, and the former one stays meanwhile."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    pipeline: str
    task: str
    table: str
    """Empty when the whole task is meant."""
    state: TaskState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RowsMoved:
    """Changes of a table went through a task: into the log, or out of it into a target."""

    pipeline: str
    task: str
    table: str
    rows: int
    bytes: int
    committed_ms: int
    """Commit time at the source of the newest of them."""
    moved_ms: int


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far the reading of a table's existing rows, a replay or a rebuild has come."""

    pipeline: str
    task: str
    table: str
    rows: int
    rows_expected: int | None
    bytes: int | None
    bytes_expected: int | None
    is_done: bool


@dataclass(frozen=True, slots=True)
class OffsetsApplied:
    """Where a task stands now, in words that can be shown: source positions, or log offsets."""

    pipeline: str
    task: str
    positions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SliceApplied:
    """A slice is in its target; reported only where the file wants traces."""

    pipeline: str
    task: str
    committed_ms: int
    """Commit time at the source of the oldest change in it."""
    begun_ms: int
    applied_ms: int
    rows: int
    bytes: int
    tables: Sequence[str]
    cut: int | None
    """Offset in `__headwater_commits` of the commit at which it ends, if the log still has it."""


@dataclass(frozen=True, slots=True)
class DeadLettersAdded:
    """Records went to the dead-letter topic."""

    pipeline: str
    task: str
    table: str
    records: int
    problem: str


@dataclass(frozen=True, slots=True)
class GaugesRead:
    """A figure of a source's that users watch, such as the write-ahead log that it retains."""

    pipeline: str
    task: str
    name: str
    value: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class RemarksMade:
    """Something that users should know of a task that runs all the same."""

    pipeline: str
    task: str
    name: str
    """The subject of it."""
    problem: str
    """Empty when there is nothing to say of it any more."""
    hint: str
    left_out: Sequence[str] = ()
    """Tables of the file that are not captured because of it."""


@dataclass(frozen=True, slots=True)
class TableKnown:
    """The log holds changes of a table, whether or not anything happens to it now."""

    pipeline: str
    task: str
    table: str


@dataclass(frozen=True, slots=True)
class TableVerified:
    """A table was compared: at its source, in the log and in the targets."""

    pipeline: str
    task: str
    table: str
    at_ms: int
    differing: int
    rows: int
    sides: str
    """The sides that were compared with the log: `source,sql`."""
    problem: str
    """Why something could not be compared; empty where everything was."""


Report = (
    StateChanged
    | RowsMoved
    | ReadProgress
    | OffsetsApplied
    | SliceApplied
    | DeadLettersAdded
    | GaugesRead
    | RemarksMade
    | TableKnown
    | TableVerified
)
Reporter = Callable[[Report], None]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One life of a task, which is the source of a pipeline or one of its sinks."""

    loaded: "LoadedPipeline"
    name: str
    """`source`, or a sink's name."""
    log: "Log"
    desired: "Callable[[], DesiredTaskState]"
    clock: "Clock"
    report: Reporter
    until_end: bool = False


KINDS: dict[str, type[Report]] = {
    kind.__name__: kind
    for kind in (
        StateChanged,
        RowsMoved,
        ReadProgress,
        OffsetsApplied,
        SliceApplied,
        DeadLettersAdded,
        GaugesRead,
        RemarksMade,
        TableKnown,
        TableVerified,
    )
}


def report_to_json(report: Report) -> dict[str, Any]:
    """Something `orjson.dumps` takes."""
    found: dict[str, Any] = {"kind": type(report).__name__}
    for each in fields(report):
        value = getattr(report, each.name)
        found[each.name] = value.value if isinstance(value, TaskState) else value
    if isinstance(report, OffsetsApplied):
        found["positions"] = dict(report.positions)
    return found


def report_from_json(found: dict[str, Any]) -> Report:
    content = dict(found)
    try:
        kind = KINDS[content.pop("kind")]
        if kind is StateChanged:
            content["state"] = TaskState(content["state"])
        if kind is RemarksMade:
            content["left_out"] = tuple(content["left_out"])
        if kind is SliceApplied:
            content["tables"] = tuple(content["tables"])
        return kind(**content)
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            "the line of another process is not a report", found=type(error).__name__
        ) from None


def encode_report(report: Report) -> bytes:
    """One line, its end included."""
    return orjson.dumps(report_to_json(report), option=orjson.OPT_APPEND_NEWLINE)


def read_object(line: bytes) -> dict[str, Any]:
    """A line that must be a JSON object."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise DecodeError("the line of another process is not a JSON object", bytes=len(line))
    return found
