"""Reports as lines of JSON, for the pipes and connections between processes."""

from dataclasses import fields
from typing import Any

import orjson

from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.reports import (
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

KINDS: dict[str, type[Report]] = {
    kind.__name__: kind
    for kind in (
        StateChanged,
        RowsMoved,
        ReadProgress,
        OffsetsApplied,
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
        return kind(**content)
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            "a line of another process is no report", found=type(error).__name__
        ) from None


def encode_report(report: Report) -> bytes:
    """One line, its end included."""
    return orjson.dumps(report_to_json(report), option=orjson.OPT_APPEND_NEWLINE)


def decode_report(line: bytes) -> Report:
    return report_from_json(read_object(line))


def read_object(line: bytes) -> dict[str, Any]:
    """A line that must be a JSON object."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise DecodeError("a line of another process is no JSON object", bytes=len(line))
    return found
