"""Messages between the owner and its worker processes, one JSON object a line."""

import base64
from dataclasses import dataclass, field
from typing import Any

import orjson

from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.reports import (
    Report,
    TaskState,
    read_object,
    report_from_json,
    report_to_json,
)
from headwater.pipelines.running.supervisor import TaskEnded, TaskId


@dataclass(frozen=True, slots=True)
class StartTask:
    """Run a task. Secrets are inside, so this goes over a pipe and nowhere else."""

    task: TaskId
    pipeline: bytes = field(repr=False)
    """`LoadedPipeline.to_wire()`."""
    bootstrap: tuple[str, ...]
    until_end: bool


@dataclass(frozen=True, slots=True)
class StopTask:
    """End a task; `TaskGone` is the answer."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Tasks may run for so long; without any, for ever. An owner that stands still cannot say that
    its tasks run elsewhere by now."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class LeaveTask:
    """End all tasks, then the process."""


@dataclass(frozen=True, slots=True)
class TaskGone:
    """Nothing of the task runs any more."""

    task: TaskId


Order = StartTask | StopTask | RenewLease | LeaveTask
"""From the owner to a worker; the end of the pipe means that there is no owner any more."""
Word = Report | TaskEnded | TaskGone
"""From a worker to the owner."""


def encode_order(order: Order) -> bytes:
    match order:
        case StartTask():
            content = {
                "start": list(order.task),
                "pipeline": base64.b64encode(order.pipeline).decode(),
                "bootstrap": order.bootstrap,
                "until_end": order.until_end,
            }
        case StopTask():
            content = {"stop": list(order.task)}
        case RenewLease():
            content = {"lease": order.for_ms}
        case LeaveTask():
            content = {"leave": True}
    return _line(content)


def decode_order(line: bytes) -> Order:
    found = read_object(line)
    match found:
        case {"start": task, "pipeline": str(wire), "bootstrap": list(bootstrap)}:
            return StartTask(
                TaskId(*task),
                base64.b64decode(wire),
                tuple(bootstrap),
                until_end=bool(found.get("until_end")),
            )
        case {"stop": task}:
            return StopTask(TaskId(*task))
        case {"lease": int(for_ms)}:
            return RenewLease(for_ms)
        case {"leave": _}:
            return LeaveTask()
    raise DecodeError("the worker does not know this command", keys=sorted(found))


def encode_word(word: Word) -> bytes:
    match word:
        case TaskEnded():
            content: dict[str, Any] = {
                "ended": list(word.task),
                "state": word.state.value,
                "reason": word.reason,
                "error": word.kind,
            }
        case TaskGone():
            content = {"gone": list(word.task)}
        case _:
            content = report_to_json(word)
    return _line(content)


def decode_word(line: bytes) -> Word:
    found = read_object(line)
    match found:
        case {"ended": task, "state": str(state), "reason": str(reason), "error": str(kind)}:
            return TaskEnded(TaskId(*task), TaskState(state), reason, kind)
        case {"gone": task}:
            return TaskGone(TaskId(*task))
    return report_from_json(found)


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
