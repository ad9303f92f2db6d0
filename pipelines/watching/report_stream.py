"""Reports for whoever listens over HTTP, each listener at its own pace and none in the way."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
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
    SliceApplied,
    StateChanged,
    TableKnown,
    TableVerified,
    TaskState,
)

WAITING_MAX = 2_000
"""Lines kept for a listener that is slower than the reports; older ones are then left out."""
LISTENERS_MAX = 32
QUIET_S = 5.0
"""After so long without a report an empty line shows that the connection lives."""


class Listener:
    """Lines in their order. The number of reports that were left out stands in their place."""

    def __init__(self, pipeline: str | None) -> None:
        self._pipeline = pipeline
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._missed = 0

    def hear(self, report: Report) -> None:
        if self._pipeline not in (None, report.pipeline):
            return
        if self._waiting.qsize() >= WAITING_MAX:
            self._waiting.get_nowait()
            self._missed += 1
        self._waiting.put_nowait(encode_report(report))

    def end(self) -> None:
        self._waiting.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Until there will be no more reports at all."""
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    line = await self._waiting.get()
            except TimeoutError:
                line = b"\n"
            if line is None:
                return
            if self._missed:
                missed, self._missed = self._missed, 0
                yield orjson.dumps({"kind": "Missed", "count": missed}) + b"\n"
            yield line


class ReportStream:
    """A Reporter that passes everything on to those who listen just then."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def __call__(self, report: Report) -> None:
        for listener in self._listeners:
            listener.hear(report)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def is_full(self) -> bool:
        return self.listeners >= LISTENERS_MAX

    @contextmanager
    def listening(self, pipeline: str | None) -> Iterator[Listener]:
        listener = Listener(pipeline)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def end(self) -> None:
        """Lets everybody go."""
        for listener in self._listeners:
            listener.end()


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
