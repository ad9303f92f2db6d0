"""Delivers a range of the log to a sink, between two moments, and ends there."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import PositionLost, RecordsRejected, SinkRejected
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, RetainedRange, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.loaded_parts import LoadedPart
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.assembly import delivery_of, split_reader_of
from headwater.pipelines.loops.deliver.deliver import Delivery
from headwater.pipelines.loops.deliver.offset_check import check_offset, epoch_ends, lost_topics
from headwater.pipelines.reports import TaskRun
from headwater.pipelines.time_travel.history.commit_index import CommitIndex
from headwater.pipelines.time_travel.history.cut_points import CutPoint, Ends, check_exact
from headwater.sinks.evolution import holds, is_strict_beside
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Sink, Slice

SLICE_RECORDS = 500_000
"""Records of a partition applied at once, or the sink's own limit if it is larger: a lake rewrites
files with every slice."""
BEGIN_ANEW = "begin the copy anew: drop it there, or choose another place with --into"


@dataclass(frozen=True, slots=True)
class Replay:
    """The range of a replay, and its progress."""

    changes: int
    offsets: int
    offsets_wanted: int


ReplayReporter = Callable[[Replay], None]
Through = Callable[[AsyncIterator[TableChanges]], AsyncIterator[TableChanges]]


async def replay(
    loaded: LoadedPipeline,
    part: LoadedPart,
    sink: Sink,
    log: Log,
    *,
    start: Ends,
    end: Ends,
    clock: Clock,
    as_of: CutPoint | None = None,
    reporter: ReplayReporter = lambda _: None,
    through: Through | None = None,
) -> int:
    """Applies the range from the target's own offsets; returns the number of changes.

    Raises PositionLost if compaction passes `as_of`, the moment at which the range ends, meanwhile.
    `through`: the last steps of changes, all in this process.
    """
    topics = sorted({partition.topic for partition in end})
    desired = DesiredTaskState(loaded.name)
    task = TaskRun(loaded, part.name, log, lambda: desired, clock, report=lambda _: None)
    delivery = delivery_of(task, part, sink, topics=topics)
    ids = {topic: await log.topic_id(topic) for topic in topics}
    found = await _load_offsets(sink, log, end, ids)
    offsets = {each: start.get(each, 0) for each in end}
    offsets |= {each: applied.next_offset for each, applied in found.items()}
    dropped_before = {each: offsets[each] for each in found if offsets[each]}
    skipped = delivery.rejected.skipped_offsets
    split_reader = None if through else split_reader_of(loaded, log, skipped=skipped)

    def read(part: Slice) -> AsyncIterator[TableChanges]:
        changes = delivery.reader.read(part)
        return changes if through is None else through(changes)

    records = max(SLICE_RECORDS, getattr(part.settings, "slice_rows", 0))
    wanted = sum(end[each] - at for each, at in offsets.items())
    truncated = await CommitIndex(log, loaded.name).find_truncated(offsets, end)
    changes = done = 0
    for topic in topics:
        while moves := _next_ends(topic, offsets, end, records=records):
            kept = await log.retained_ranges(moves)
            _check_whole(offsets, kept, dropped_before)
            part_of_it = Slice(
                log=log,
                start={each: AppliedOffset(ids[topic], offsets[each]) for each in moves},
                end={
                    each: AppliedOffset(ids[topic], to, kept[each].leader_epoch)
                    for each, to in moves.items()
                },
                cut=None,
                read=read,
                truncated=truncated & {topic},
                kept=kept,
                split_reader=split_reader,
                heard=delivery.reader.hear,
            )
            delivery.reader.begin_counts()
            await _apply(delivery, part_of_it)
            changes += sum(count.rows for count in delivery.reader.counts.values())
            done += sum(to - offsets[each] for each, to in moves.items())
            offsets |= moves
            reporter(Replay(changes, done, wanted))
    if as_of is not None:
        await check_exact(log, loaded.name, as_of)
    return changes


async def _load_offsets(sink: Sink, log: Log, end: Ends, ids: Mapping[str, str]) -> AppliedOffsets:
    """Returns where partitions of an interrupted replay continue, if the log can continue them."""
    applied = await sink.committed_offsets(sorted(ids)) or {}
    found = {each: applied[each] for each in end if each in applied}
    for partition, at in found.items():
        if at.topic_id != ids[partition.topic] or at.next_offset > end[partition]:
            raise SinkRejected(
                "the target already has a later state",
                hint=BEGIN_ANEW,
                topic=partition.topic,
                partition=partition.partition,
                target=at.next_offset,
                wanted=end[partition],
            )
    unfinished = {each: at for each, at in found.items() if at.next_offset < end[each]}
    ends, bounds = await epoch_ends(log, unfinished), await log.bounds([*unfinished])
    for lost in lost_topics(unfinished, bounds, ids, ends).values():
        raise _begun_anew(lost)
    return found


def _check_whole(
    offsets: Mapping[TopicPartition, int],
    kept: Mapping[TopicPartition, RetainedRange],
    dropped_before: dict[TopicPartition, int],
) -> None:
    """Raises PositionLost if the log has removed records or deletes that the copy lacks. A
    partition that is begun now has nothing to lose by those of before."""
    for partition, retained in kept.items():
        dropped_to = retained.deletes_dropped_to
        if partition not in dropped_before:
            dropped_before[partition] = dropped_to
            continue
        if dropped_to <= dropped_before[partition]:
            retained = replace(retained, deletes_dropped_to=0)
        try:
            check_offset(partition, offsets[partition], retained)
        except PositionLost as lost:
            raise _begun_anew(lost) from None


def _begun_anew(lost: PositionLost) -> PositionLost:
    return PositionLost(lost.problem, hint=BEGIN_ANEW, **lost.facts)


def _next_ends(
    topic: str, offsets: Mapping[TopicPartition, int], end: Ends, *, records: int
) -> dict[TopicPartition, int]:
    """Returns a part of a single partition; several partitions stay together, because a truncate is
    one event in all of them."""
    behind = {part: to for part, to in end.items() if part.topic == topic and to > offsets[part]}
    count = sum(part.topic == topic for part in end)
    if count > 1:
        return behind
    return {part: min(to, offsets[part] + records) for part, to in behind.items()}


async def _apply(delivery: Delivery, part: Slice) -> None:
    """Applies a slice; records that no target can hold become dead letters, as always."""
    while True:
        try:
            async with aclosing(delivery.reader):
                await delivery.sink.apply(part)
            return
        except RecordsRejected as error:
            if not await delivery.rejected.take(error, table=error.topic):
                raise


async def begin_empty(
    shadow: Sink, schema: TableSchema, log: Log, beginnings: Mapping[TopicPartition, int]
) -> None:
    """Empties the copy by a truncate, because the log has no records from there on that would fill
    it. Partitions that the copy has passed are left alone."""
    applied = await shadow.committed_offsets(sorted({part.topic for part in beginnings}))
    if applied is None or not beginnings.keys() - applied.keys():
        return
    left = {part: offset for part, offset in beginnings.items() if part not in applied}
    is_new = not applied.keys() & beginnings.keys()
    ids = {part.topic: await log.topic_id(part.topic) for part in left}

    async def read(part: Slice) -> AsyncIterator[TableChanges]:
        if is_new:
            yield _truncate(schema, left)

    await shadow.apply(
        Slice(
            log=log,
            start={part: AppliedOffset(ids[part.topic], 0) for part in left},
            end={part: AppliedOffset(ids[part.topic], offset) for part, offset in left.items()},
            cut=None,
            read=read,
        )
    )


def _truncate(schema: TableSchema, left: Mapping[TopicPartition, int]) -> TableChanges:
    markers = {part: max(offset - 1, 0) for part, offset in left.items()}
    [place, *_] = markers
    columns = [pa.nulls(1, field.type) for field in schema.arrow]
    return TableChanges(
        schema,
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        pa.array([Operation.TRUNCATE], pa.uint8()),
        source={"ts_us": 0},
        log_partition=place,
        log_offsets=pa.array([markers[place]], pa.int64()),
        markers=markers,
    )


def keeps_deleted(part: LoadedPart, table: TableId) -> bool:
    """Returns whether the target keeps rows that the source has deleted."""
    chosen = part.table_settings(table)
    return bool(chosen and (chosen.mode == "soft_delete" or chosen.deletes == "ignore"))


async def fill_former(
    loaded: LoadedPipeline,
    part: LoadedPart,
    shadow: Sink,
    log: Log,
    schema: TableSchema,
    *,
    live: AppliedOffsets,
    beginnings: Mapping[TopicPartition, int],
    clock: Clock,
) -> None:
    """Fills a copy up to the last re-read, if the live table has not reached it: rows deleted
    before are not among those that are carried over."""
    if all(place in live and live[place].next_offset >= at for place, at in beginnings.items()):
        return
    applied = await shadow.committed_offsets(sorted({place.topic for place in beginnings})) or {}
    if all(
        place in applied and applied[place].next_offset >= at for place, at in beginnings.items()
    ):
        return

    async def fit_all(changes: AsyncIterator[TableChanges]) -> AsyncIterator[TableChanges]:
        async for each in changes:
            yield fit(each, schema)

    start = dict.fromkeys(beginnings, 0)
    await begin_empty(shadow, schema, log, start)  # compaction may have left no records for it
    await replay(
        loaded, part, shadow, log, start=start, end=beginnings, clock=clock, through=fit_all
    )


def fit(changes: TableChanges, newest: TableSchema) -> TableChanges:
    """Returns the rows in the present columns. Values that these types cannot hold become null,
    because they must not be converted silently."""
    rows, given = changes.rows, {column.name: column for column in changes.schema.columns}
    columns = tuple(
        column if column.name in newest.key else replace(column, is_nullable=True)
        for column in newest.columns
    )
    values = [
        rows.column(column.name).cast(column.type)
        if (former := given.get(column.name))
        and holds(column.type, former.type)
        and not is_strict_beside(column, former)
        else pa.nulls(len(changes), column.type)
        for column in columns
    ]
    schema = replace(newest, columns=columns)
    return replace(
        changes,
        schema=schema,
        rows=pa.RecordBatch.from_arrays(values, schema=schema.arrow),
        before=None,
    )
