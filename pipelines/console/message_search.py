"""Messages of a topic: newest first within a budget, and new ones as they come."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.console.hidden_columns import VALUE_CHARACTERS_MAX
from headwater.pipelines.console.shown_records import RecordReader, ShownRecord, pick
from headwater.pipelines.watching.http_routes import TooLarge

BYTES_MAX, SECONDS_MAX = 64 << 20, 2.0
"""Limits of one look."""
SHOWN_MAX = 200
WINDOW_OFFSETS_MIN, WINDOW_OFFSETS_MAX = 16, 50_000
FETCH_BYTES_MIN, FETCH_BYTES_MAX = 64 << 10, 4 << 20


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Everything given has to hold of a message; values, never expressions."""

    contains: str = ""
    """In key or value, as bytes; of a table with hidden columns in what is shown."""
    keys: frozenset[bytes] | None = None
    """Keys as records carry them."""
    operations: frozenset[str] = frozenset()
    """Debezium's letters."""

    @property
    def is_open(self) -> bool:
        return not self.contains and self.keys is None and not self.operations


@dataclass(slots=True)
class LookBudget:
    """How much one look has read, and whether it may go on."""

    bytes_max: int = BYTES_MAX
    seconds_max: float = SECONDS_MAX
    bytes: int = 0
    records: int = 0
    until: float = 0.0

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.seconds_max

    @property
    def is_spent(self) -> bool:
        return self.bytes >= self.bytes_max or time.monotonic() >= self.until


@dataclass(frozen=True, slots=True)
class MessagePage:
    """The newest messages below a place."""

    messages: list[ShownRecord]
    hidden: list[str]
    """Columns that this console does not show."""
    looked_at: int
    """Offsets that this look has passed."""
    left: int
    """Offsets below, where it has not looked."""
    next: str | None
    """Where to go on, as `until`; None at the start of the topic."""


@dataclass(slots=True)
class _Backwards:
    """One partition, read in windows from its end; found records wait for those of others."""

    place: TopicPartition
    start: int
    end: int
    """Everything from here on has been looked at."""
    upper: int
    window: int
    waiting: list[ShownRecord] = field(default_factory=list)
    """Newest first."""

    @property
    def is_at_start(self) -> bool:
        return self.end <= self.start


async def search(
    log: Log,
    reader: RecordReader,
    wanted: MessageFilter,
    *,
    lower: Mapping[TopicPartition, int],
    upper: Mapping[TopicPartition, int],
    limit: int,
    hidden: Sequence[str],
    budget: LookBudget,
) -> MessagePage:
    """Reads until `limit` messages are found, the budget is spent, or the start is reached."""
    limit = min(limit, SHOWN_MAX)
    window = max(limit // max(len(upper), 1), WINDOW_OFFSETS_MIN)
    parts = [
        _Backwards(at, lower[at], max(end, lower[at]), max(end, lower[at]), window)
        for at, end in upper.items()
    ]
    shown: list[ShownRecord] = []
    while len(shown) < limit:
        empty = next((each for each in parts if not each.waiting and not each.is_at_start), None)
        if empty is not None and not budget.is_spent:
            await _look_back(log, reader, wanted, empty, budget)
            continue
        newest = max(
            (each for each in parts if each.waiting),
            key=lambda each: each.waiting[0].appended_ms,
            default=None,
        )
        if newest is None:
            break
        shown.append(newest.waiting.pop(0))
    ends = {each.place: _end_of(each) for each in parts}
    left = sum(ends[each.place] - each.start for each in parts)
    going_on = ",".join(f"{at.partition}:{end}" for at, end in sorted(ends.items()))
    return MessagePage(
        messages=shown,
        hidden=list(hidden),
        looked_at=sum(each.upper - ends[each.place] for each in parts),
        left=left,
        next=going_on if left else None,
    )


def _end_of(part: _Backwards) -> int:
    """Where the next look goes on: records that were found and not shown are found again."""
    return part.waiting[0].offset + 1 if part.waiting else part.end


async def _look_back(
    log: Log, reader: RecordReader, wanted: MessageFilter, part: _Backwards, budget: LookBudget
) -> None:
    """Reads the window below, whole: the budget ends a look between windows."""
    start = max(part.end - part.window, part.start)
    found: list[ShownRecord] = []
    offset, before = start, budget.bytes
    limit = FetchLimit(bytes_max=FETCH_BYTES_MIN, wait_ms_max=0)
    while offset < part.end:
        fetched = await log.fetch({part.place: offset}, limit=limit, isolation=Isolation.COMMITTED)
        if not fetched:
            break  # compaction has taken the rest
        for each in fetched:
            budget.bytes += len(each.data)
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=part.place)
            columns = pick(columns, np.flatnonzero(columns.offsets < part.end).tolist())
            budget.records += len(columns)
            found += await matching(reader, wanted, part.place, columns)
            offset = each.next_offset
        limit = replace(limit, bytes_max=min(2 * limit.bytes_max, FETCH_BYTES_MAX))
    found.reverse()
    part.waiting += found
    size = max((budget.bytes - before) // max(part.end - start, 1), 1)
    part.end = start
    part.window = min(2 * part.window, WINDOW_OFFSETS_MAX, max(FETCH_BYTES_MAX // size, 1))


async def matching(
    reader: RecordReader, wanted: MessageFilter, place: TopicPartition, columns: RecordColumns
) -> list[ShownRecord]:
    """Cheap filters first: what they leave out is never decoded."""
    mask = np.ones(len(columns), bool)
    if wanted.keys is not None:
        mask &= _is_true(pc.is_in(columns.keys, value_set=pa.array([*wanted.keys], pa.binary())))
    if wanted.contains and not reader.hides:
        pattern = wanted.contains.encode()
        mask &= _is_true(pc.match_substring(columns.values, pattern)) | _is_true(
            pc.match_substring(columns.keys, pattern)
        )
    columns = columns if mask.all() else pick(columns, np.flatnonzero(mask).tolist())
    if not len(columns):
        return []
    found = await reader.read(place, columns, characters_max=VALUE_CHARACTERS_MAX)
    if wanted.operations:
        found = [each for each in found if each.operation in wanted.operations]
    if wanted.contains and reader.hides:
        found = [each for each in found if _says(each, wanted.contains)]
    return found


def _is_true(found: pa.BooleanArray) -> BoolArray:
    return np.asarray(found.fill_null(False))


def _says(record: ShownRecord, text: str) -> bool:
    return text in (record.key or "") or any(text in (each.value or "") for each in record.fields)


TAILED_MAX, INTERVAL_S = 50, 1.0
BEHIND_MAX = 5_000
"""Offsets of a partition that are read in one interval; older ones are only counted."""
WAIT = FetchLimit(bytes_max=4 << 20, wait_ms_max=1_000)
TAILS_MAX = 32


@dataclass(frozen=True, slots=True)
class TailedMessages:
    """Messages that came in one moment."""

    messages: list[ShownRecord]
    """The newest of them, newest first."""
    not_shown: int


class MessageTail:
    """Follows partitions from their end."""

    def __init__(self, log: Log, reader: RecordReader, wanted: MessageFilter) -> None:
        self._log, self._reader, self._wanted = log, reader, wanted

    async def follow(self, places: Sequence[TopicPartition]) -> AsyncIterator[TailedMessages]:
        """Runs until nobody listens. A quiet moment is yielded as well, at first the one in which
        the end is known."""
        offsets = {at: found.stable for at, found in (await self._log.bounds(places)).items()}
        yield TailedMessages([], 0)
        while True:
            began, found, passed = time.monotonic(), list[ShownRecord](), 0
            for each in await self._log.fetch(offsets, limit=WAIT, isolation=Isolation.COMMITTED):
                at = each.partition
                columns = arrow_codec.decode(each.data, from_offset=offsets[at], partition=at)
                found += await matching(self._reader, self._wanted, at, columns)
                offsets[at] = each.next_offset
            for at, bounds in (await self._log.bounds(places)).items():
                if bounds.stable - offsets[at] > BEHIND_MAX:
                    passed += bounds.stable - BEHIND_MAX - offsets[at]
                    offsets[at] = bounds.stable - BEHIND_MAX
            found.sort(key=lambda record: (record.appended_ms, record.offset), reverse=True)
            yield TailedMessages(found[:TAILED_MAX], max(len(found) - TAILED_MAX, 0) + passed)
            await asyncio.sleep(max(began + INTERVAL_S - time.monotonic(), 0))


class TailCount:
    """How many pages follow a topic now."""

    def __init__(self) -> None:
        self._count = 0

    def check(self) -> None:
        if self._count >= TAILS_MAX:
            raise TooLarge("too many pages follow topics", hint="close one of them")

    @contextmanager
    def count_one(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
