"""The recent past of one table, through which its page slides: changes, and their number."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.console.hidden_columns import ShownColumn, ShownTable
from headwater.pipelines.journal.commits import NO_TIME, commits_home, decode_commits
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.time_travel.history.key_history import (
    KeyChange,
    decode_changes,
    key_bytes,
    key_history,
)

SLOTS = 120
CHANGES_MAX, KEYS_MAX = 5_000, 60
COMMITS_BEFORE, COMMITS_MAX = 1_000, 50_000
"""Commits read before the oldest change that is shown, in case the source's clock went back; and in
all."""
NEVER_MS = 1 << 62
FETCH = FetchLimit(bytes_max=4 << 20, wait_ms_max=0)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change of a row, as text."""

    partition: int
    offset: int
    operation: str
    """Debezium's letter."""
    at: str
    """The source's commit, and the place in it."""
    committed_ms: int
    appended_ms: int
    key: str | None
    """None for a truncate."""
    row: list[str | None] | None
    """In the order of the columns; None if it was deleted, or the table truncated."""
    visible_ms: int
    """The first moment as of which it shows; 0 where that was not asked for."""


@dataclass(frozen=True, slots=True)
class TopicActivity:
    """How many records of a topic were appended, by slots of time."""

    from_ms: int
    to_ms: int
    counts: list[int]
    cleaned_to: dict[str, int]
    """By partition: below this offset compaction may have removed older changes."""


@dataclass(frozen=True, slots=True)
class TablePast:
    """Changes of a table, oldest first in each partition."""

    table: str
    topic: str
    key: list[str]
    columns: list[ShownColumn]
    hidden: list[str]
    """Columns that this console does not show."""
    is_whole: bool
    """Whether every change that the log ever had is here."""
    looked_to_ms: int | None
    keys_left_out: int
    changes: list[ShownChange]


async def partitions_of(log: Log, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in range(await log.partition_count(topic))]


async def activity(log: Log, topic: str, *, now_ms: int) -> TopicActivity:
    """Returns how many records were appended in each slot, from the time index alone."""
    partitions = await partitions_of(log, topic)
    bounds = await log.bounds(partitions)
    oldest = [
        await _appended_ms(log, each, bounds[each].start)
        for each in partitions
        if bounds[each].start < bounds[each].stable
    ]
    from_ms = min((each for each in oldest if each is not None), default=now_ms)
    width_ms = max((now_ms - from_ms) / SLOTS, 1)
    ends = await asyncio.gather(
        *(
            log.offsets_at(partitions, timestamp_ms=int(from_ms + width_ms * slot))
            for slot in range(SLOTS + 1)
        )
    )
    totals = [sum(each.values()) for each in ends]
    return TopicActivity(
        from_ms,
        now_ms,
        [after - before for before, after in pairwise(totals)],
        {str(at.partition): found.cleaned_to for at, found in bounds.items()},
    )


async def _appended_ms(log: Log, at: TopicPartition, offset: int) -> int | None:
    for each in await log.fetch({at: offset}, limit=FETCH, isolation=Isolation.COMMITTED):
        columns = arrow_codec.decode(each.data, from_offset=offset, partition=at)
        if len(columns):
            return int(columns.timestamps_ms[0])
    return None


async def recent_changes(log: Log, stored: StoredSchema, shown: ShownTable) -> TablePast:
    """Returns the newest changes of the keys that changed last."""
    partitions = await partitions_of(log, stored.topic)
    bounds = await log.bounds(partitions)
    share = CHANGES_MAX // len(partitions)
    starts = {at: max(found.start, found.stable - share) for at, found in bounds.items()}
    changes = [
        change
        for at in partitions
        for change in await _read(log, stored, shown, at, starts[at], bounds[at].stable)
    ]
    newest = _newest_keys(changes)
    chosen = [each for each in changes if each.key is None or each.key in newest]
    return await _answer(
        log,
        stored,
        shown,
        chosen,
        is_whole=all(starts[at] == bounds[at].start and not _gaps(bounds[at]) for at in partitions),
        keys_left_out=len({each.key for each in changes if each.key is not None}) - len(newest),
    )


async def changes_of_key(log: Log, stored: StoredSchema, shown: ShownTable, key: str) -> TablePast:
    """Returns the newest changes of one key."""
    if shown.is_key_hidden:
        raise ConfigError(
            "the key of the table is hidden here",
            hint="console.hide of the pipeline file names its column",
            table=str(stored.schema.table),
        )
    keys = await key_bytes(log, stored, key)
    found = [shown_change(each, shown) async for each in key_history(log, stored, keys)]
    bounds = await log.bounds(await partitions_of(log, stored.topic))
    is_whole = len(found) <= CHANGES_MAX and not any(map(_gaps, bounds.values()))
    chosen = found[-CHANGES_MAX:]
    return await _answer(log, stored, shown, chosen, is_whole=is_whole, keys_left_out=0)


def _gaps(bounds: Bounds) -> bool:
    """Whether older changes may be gone."""
    return bounds.start > 0 or bounds.cleaned_to > 0


async def _read(
    log: Log, stored: StoredSchema, shown: ShownTable, at: TopicPartition, start: int, end: int
) -> list[ShownChange]:
    decoder = RecordDecoder(log)
    await decoder.look([stored.topic])
    found: list[ShownChange] = []
    offset = start
    while offset < end:
        for each in await log.fetch({at: offset}, limit=FETCH, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=at)
            changes = await decode_changes(decoder, at, columns)
            found += [shown_change(change, shown) for change in changes if change.offset < end]
            offset = each.next_offset
    return found


def shown_change(change: KeyChange, shown: ShownTable) -> ShownChange:
    return ShownChange(
        change.partition,
        change.offset,
        change.operation,
        change.at,
        change.committed_ms,
        change.appended_ms,
        None if change.key is None else shown.key(change.key),
        None if change.row is None else shown.row(change.row),
        0,
    )


def _newest_keys(changes: Sequence[ShownChange]) -> set[str]:
    found: dict[str, None] = {}
    for each in sorted(changes, key=lambda change: -change.committed_ms):
        if each.key is not None:
            found[each.key] = None
        if len(found) == KEYS_MAX:
            break
    return set(found)


async def _answer(
    log: Log,
    stored: StoredSchema,
    shown: ShownTable,
    changes: Sequence[ShownChange],
    *,
    is_whole: bool,
    keys_left_out: int,
) -> TablePast:
    visible = await _visible_from(log, stored, changes)
    return TablePast(
        table=str(stored.schema.table),
        topic=stored.topic,
        key=list(stored.schema.key),
        columns=list(shown.columns()),
        hidden=list(shown.hidden),
        is_whole=is_whole,
        looked_to_ms=min(visible, default=None),
        keys_left_out=keys_left_out,
        changes=[
            replace(each, visible_ms=visible_ms)
            for each, visible_ms in zip(changes, visible, strict=True)
        ],
    )


async def _visible_from(
    log: Log, stored: StoredSchema, changes: Sequence[ShownChange]
) -> list[int]:
    """Returns the first moment as of which each change shows: as of a moment everything counts that
    comes before the first transaction with a later commit time."""
    if not changes:
        return []
    home = commits_home(stored.pipeline)
    oldest_ms = min(each.appended_ms for each in changes)
    first = (await log.offsets_at([home], timestamp_ms=oldest_ms))[home] - COMMITS_BEFORE
    bounds = (await log.bounds([home]))[home]
    ends: dict[int, list[int]] = {}
    moments: dict[int, list[tuple[int, int]]] = {}
    before_ms, offset = 0, max(first, bounds.start, bounds.stable - COMMITS_MAX)
    while offset < bounds.stable:
        for each in await log.fetch({home: offset}, limit=FETCH, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=home)
            for _, commit in decode_commits(columns, stored.pipeline):
                for at, touched in commit.touched.items():
                    if at.topic == stored.topic:
                        ends.setdefault(at.partition, []).append(touched.end)
                        moments.setdefault(at.partition, []).append(
                            (before_ms, commit.committed_ms)
                        )
                if commit.committed_ms != NO_TIME:
                    before_ms = max(before_ms, commit.committed_ms)
            offset = each.next_offset
    visible: dict[tuple[int, int], int] = {}
    newest: dict[tuple[int, int], int] = {}
    for change in sorted(changes, key=lambda each: (each.partition, each.offset)):
        theirs = ends.get(change.partition, [])
        index = bisect_right(theirs, change.offset)
        is_known = index < len(theirs)
        earlier_ms, whole_ms = moments[change.partition][index] if is_known else (0, NEVER_MS)
        inside = (change.partition, index)  # one log transaction may hold several of the source's
        newest[inside] = max(newest.get(inside, 0), change.committed_ms)
        visible[change.partition, change.offset] = max(earlier_ms, min(newest[inside], whole_ms))
    return [visible[each.partition, each.offset] for each in changes]
