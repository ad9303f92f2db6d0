"""The status of the pipelines: the newest, the past of rates and lags, and listeners who are told
of it."""

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns

if TYPE_CHECKING:
    from headwater.pipelines.running.owner_client import LockHolder

logger = logging.getLogger(__name__)
INTERVAL_S = 1.0
LISTENERS_MAX = 32

FindOwner = Callable[[], "LockHolder | None"]
"""Finds the process that runs pipelines now; it blocks."""
SECONDS_MAX, MINUTES_MAX = 600, 1_440
SHOWN_SECONDS = 120
"""Those that every page gets, for its small lines."""
LINES_MAX = 1_000
"""Tasks and tables with a past: together 41 MB after a day."""
MINUTE_MS = 60_000
FIELDS = 3
SECOND, MINUTE = "second", "minute"


class LiveStatus:
    """Asks the owner of the log once a second, as long as the console runs."""

    def __init__(self, find_owner: FindOwner, hidden: HiddenColumns = NOTHING_HIDDEN) -> None:
        self._find_owner, self._hidden = find_owner, hidden
        self._owner: LockHolder | None = None
        self.past = StatusPast()
        self._changed = asyncio.Event()
        self.listeners = 0
        self.now: Mapping[str, Any] = {"is_running": False, "pipelines": {}}

    async def follow(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._look()
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        try:
            owner = self._owner or await asyncio.to_thread(self._find_owner)
            if owner is not None:
                status = await asyncio.to_thread(owner.status)
                self._owner = owner
                self.now = {**self._hidden.status(status), "is_running": True}
                self.past.add(self.now)
                return
        except HeadwaterError as error:
            logger.debug("the status is not known now: %s", error)
        self._owner = None
        self.now = {**self.now, "is_running": False}

    async def owner(self) -> "LockHolder | None":
        """Returns the process that runs pipelines, which takes signals."""
        return self._owner or await asyncio.to_thread(self._find_owner)

    async def events(self) -> AsyncIterator[bytes]:
        """Yields server-sent events: the past once, and the status each second."""
        self.listeners += 1
        try:
            yield event_of("past", dict(self.past.newest()))
            while True:
                yield event_of("status", {"seen_ms": unix_ms(), **self.now})
                with suppress(TimeoutError):
                    async with asyncio.timeout(5 * INTERVAL_S):
                        await self._changed.wait()
        finally:
            self.listeners -= 1


def event_of(kind: str, content: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(content))


@dataclass(frozen=True, slots=True)
class PastLine:
    """Samples of one task or table, oldest first."""

    at_ms: list[int]
    rows_per_s: list[float]
    bytes_per_s: list[float]
    lag_ms: list[float | None]
    """The largest one of a minute; null where it is unknown."""


class SampleRing:
    """The newest samples in little memory."""

    __slots__ = ("_next", "_size_max", "_times", "_values")

    def __init__(self, size_max: int) -> None:
        self._size_max, self._next = size_max, 0
        self._times, self._values = array("d"), array("f")

    def add(self, at_ms: int, values: "array[float]") -> None:
        if len(self._times) < self._size_max:
            self._times.append(at_ms)
            self._values.extend(values)
            return
        self._times[self._next] = at_ms
        self._values[self._next * FIELDS : (self._next + 1) * FIELDS] = values
        self._next = (self._next + 1) % self._size_max

    def line(self, *, newest: int = MINUTES_MAX) -> PastLine:
        order = [*range(self._next, len(self._times)), *range(self._next)][-newest:]
        rows, size, lag = (self._values[at::FIELDS] for at in range(FIELDS))
        return PastLine(
            [int(self._times[at]) for at in order],
            [round(rows[at], 1) for at in order],
            [round(size[at], 1) for at in order],
            [None if lag[at] < 0 else round(lag[at]) for at in order],
        )


@dataclass(slots=True)
class _Line:
    seconds: SampleRing = field(default_factory=lambda: SampleRing(SECONDS_MAX))
    minutes: SampleRing = field(default_factory=lambda: SampleRing(MINUTES_MAX))
    minute_ms: int = 0
    count: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    lag_ms: float = -1

    def add(self, at_ms: int, rows: float, size: float, lag_ms: float) -> None:
        self.seconds.add(at_ms, array("f", (rows, size, lag_ms)))
        minute_ms = at_ms - at_ms % MINUTE_MS
        if self.count and minute_ms != self.minute_ms:
            means = [each / self.count for each in self.sums]
            self.minutes.add(self.minute_ms, array("f", (*means, self.lag_ms)))
            self.count, self.sums, self.lag_ms = 0, [0.0, 0.0], -1
        self.minute_ms = minute_ms
        self.count += 1
        self.sums = [self.sums[0] + rows, self.sums[1] + size]
        self.lag_ms = max(self.lag_ms, lag_ms)


class StatusPast:
    """Begins with the console; longer pasts are Prometheus's."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, str], _Line] = {}

    def add(self, status: Mapping[str, Any]) -> None:
        at_ms = int(status["at_ms"])
        for pipeline, found in status["pipelines"].items():
            for task, facts in found["tasks"].items():
                self._add((pipeline, task, ""), at_ms, facts, facts)
            for table, facts in found["tables"].items():
                source = facts["tasks"].get("source", {})
                self._add((pipeline, "", table), at_ms, facts, source)

    def _add(
        self,
        name: tuple[str, str, str],
        at_ms: int,
        facts: Mapping[str, Any],
        sized: Mapping[str, Any],
    ) -> None:
        line = self._lines.get(name)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                return
            line = self._lines[name] = _Line()
        lag_ms = -1 if facts["lag_ms"] is None else facts["lag_ms"]
        line.add(at_ms, facts["rows_per_s"], sized.get("bytes_per_s", 0), lag_ms)

    def lines(self, pipeline: str, table: str, every: str) -> dict[str, PastLine]:
        """Returns the past of a table, or of every task of the pipeline."""
        rings = {
            name: line.minutes if every == MINUTE else line.seconds
            for name, line in self._lines.items()
            if name[0] == pipeline and name[2] == table
        }
        return {task or table: ring.line() for (_, task, _), ring in rings.items()}

    def newest(self) -> Iterator[tuple[str, list[tuple[int, float, float | None]]]]:
        """Yields the last two minutes of everything: when, changes a second, and lag."""
        for (pipeline, task, table), line in self._lines.items():
            found = line.seconds.line(newest=SHOWN_SECONDS)
            samples = zip(found.at_ms, found.rows_per_s, found.lag_ms, strict=True)
            yield f"{pipeline}/{task}/{table}" if table else f"{pipeline}/{task}", list(samples)
