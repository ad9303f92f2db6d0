"""The recent past of one table, through which its page slides: changes, and their number."""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from headwater.core_log.model.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.journal.commits import NO_TIME, commits_home, decode_commits
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.terminal.record_lines import to_json_value
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
VALUE_CHARACTERS_MAX = 2_000
NEVER_MS = 1 << 62
FETCH = FetchLimit(bytes_max=4 << 20, wait_ms_max=0)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change of a row, as text."""

    partition: int
    offset: int
    operation: str
    at: str
    """The source's commit, and the place in it."""
    committed_ms: int
    appended_ms: int
    key: str | None
    """None for a truncate."""
    row: Sequence[str | None] | None
    """In the order of the columns; None if it was deleted, or the table truncated."""


async def partitions_of(log: Log, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in range(await log.partition_count(topic))]


async def activity(log: Log, stored: StoredSchema, *, now_ms: int) -> dict[str, Any]:
    """Returns how many records were appended in each slot, from the time index alone."""
    partitions = await partitions_of(log, stored.topic)
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
    return {
        "from_ms": from_ms,
        "to_ms": now_ms,
        "counts": [after - before for before, after in pairwise(totals)],
        "cleaned_to": {str(at.partition): found.cleaned_to for at, found in bounds.items()},
    }


async def _appended_ms(log: Log, at: TopicPartition, offset: int) -> int | None:
    for each in await log.fetch({at: offset}, limit=FETCH, isolation=Isolation.COMMITTED):
        columns = arrow_codec.decode(each.data, from_offset=offset, partition=at)
        if len(columns):
            return int(columns.timestamps_ms[0])
    return None


async def recent_changes(log: Log, stored: StoredSchema) -> dict[str, Any]:
    """Returns the newest changes of the keys that changed last."""
    partitions = await partitions_of(log, stored.topic)
    bounds = await log.bounds(partitions)
    share = CHANGES_MAX // len(partitions)
    starts = {at: max(found.start, found.stable - share) for at, found in bounds.items()}
    changes = [
        change for at in partitions for change in await _read(log, stored, at, starts[at], bounds)
    ]
    newest = _newest_keys(changes)
    shown = [each for each in changes if each.key is None or each.key in newest]
    return await _answer(
        log,
        stored,
        shown,
        is_whole=all(starts[at] == bounds[at].start and not _gaps(bounds[at]) for at in partitions),
        keys_left_out=len({each.key for each in changes if each.key is not None}) - len(newest),
    )


async def changes_of_key(log: Log, stored: StoredSchema, key: str) -> dict[str, Any]:
    """Returns the newest changes of one key."""
    keys = await key_bytes(log, stored, key)
    found = [_to_shown(each, stored.schema) async for each in key_history(log, stored, keys)]
    bounds = await log.bounds(await partitions_of(log, stored.topic))
    is_whole = len(found) <= CHANGES_MAX and not any(map(_gaps, bounds.values()))
    return await _answer(log, stored, found[-CHANGES_MAX:], is_whole=is_whole, keys_left_out=0)


def _gaps(bounds: Bounds) -> bool:
    """Whether older changes may be gone."""
    return bounds.start > 0 or bounds.cleaned_to > 0


async def _read(
    log: Log,
    stored: StoredSchema,
    at: TopicPartition,
    start: int,
    bounds: Mapping[TopicPartition, Bounds],
) -> list[ShownChange]:
    decoder = RecordDecoder(log)
    await decoder.look([stored.topic])
    found: list[ShownChange] = []
    offset, end = start, bounds[at].stable
    while offset < end:
        for each in await log.fetch({at: offset}, limit=FETCH, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(each.data, from_offset=offset, partition=at)
            found += await shown_changes(decoder, at, columns, stored.schema)
            offset = each.next_offset
    return [each for each in found if each.offset < end]


async def shown_changes(
    decoder: RecordDecoder, at: TopicPartition, columns: RecordColumns, schema: TableSchema
) -> list[ShownChange]:
    """Decodes records; tombstones are left out."""
    return [_to_shown(each, schema) for each in await decode_changes(decoder, at, columns)]


def _to_shown(change: KeyChange, schema: TableSchema) -> ShownChange:
    key, row = change.key, change.row
    return ShownChange(
        change.partition,
        change.offset,
        change.operation,
        change.at,
        change.committed_ms,
        change.appended_ms,
        None if key is None else ", ".join(shown_cell(key.get(each)) or "" for each in schema.key),
        None if row is None else [shown_cell(row.get(each)) for each in schema.names],
    )


def shown_cell(value: Any) -> str | None:
    """Text, because a browser rounds integers above 2^53."""
    if value is None:
        return None
    plain = to_json_value(value)
    text = plain if isinstance(plain, str) else orjson.dumps(plain, default=str).decode()
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


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
    changes: Sequence[ShownChange],
    *,
    is_whole: bool,
    keys_left_out: int,
) -> dict[str, Any]:
    visible = await _visible_from(log, stored, changes)
    return {
        "table": str(stored.schema.table),
        "topic": stored.topic,
        "key": list(stored.schema.key),
        "columns": [{"name": each.name, "type": str(each.type)} for each in stored.schema.columns],
        "is_whole": is_whole,
        "looked_to_ms": min(visible, default=None),
        "keys_left_out": keys_left_out,
        "changes": [
            {
                "partition": each.partition,
                "offset": each.offset,
                "op": each.operation,
                "at": each.at,
                "committed_ms": each.committed_ms,
                "appended_ms": each.appended_ms,
                "visible_ms": visible_ms,
                "key": each.key,
                "row": each.row,
            }
            for each, visible_ms in zip(changes, visible, strict=True)
        ],
    }


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
