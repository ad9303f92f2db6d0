"""Repairs rows of a target from the log: only those that `verify` has found."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import Fenced, SinkRejected
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.schemas import newest_schema
from headwater.pipelines.loops.deliver.slice_reader import AfterLog, SliceReader, changes_at
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.deleted_rows import THERE
from headwater.pipelines.time_travel.verify.keyed_diff import (
    ComparisonResult,
    DifferenceKind,
    DifferingKey,
)
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, DeletedRows, Sink, Slice

KEYS_MAX = 50_000
ATTEMPTS_MAX = 20
"""Attempts: a running pipeline moves the target meanwhile; the next attempt starts there."""
FETCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TargetRepair:
    """Keys of one table of one sink that differ from the log as of `ends`."""

    subject: ComparedTable
    ends: Ends
    keys: Mapping[int, DifferingKey]
    deleted: DeletedRows = DeletedRows.GONE

    @property
    def shape(self) -> ComparedColumns:
        return ComparedColumns(self.subject.schema, self.subject.schema.names)


def check_few(compared: ComparisonResult, *, table: str) -> None:
    if compared.differing > KEYS_MAX:
        raise SinkRejected(
            "too many rows differ for a repair by row",
            table=table,
            differing=compared.differing,
            hint="headwater rebuild PIPELINE/TABLE --swap makes the table again from the log",
        )


async def repair_target(repair: TargetRepair, sink: Sink, log: Log, after_log: AfterLog) -> int:
    """Writes rows at the target's present offsets, which stay: a slice of zero length.

    Keys that changed meanwhile are right already. Returns the number of rows written.
    """
    for _ in range(ATTEMPTS_MAX):
        offsets = await _load_offsets(repair, sink)
        await _check_form(repair, log)
        moved = await _moved_since(repair, offsets, log, after_log)
        left = {} if moved is None else {at: k for at, k in repair.keys.items() if at not in moved}
        if not left:
            return 0
        rows = await _rows(repair, left, offsets, log, after_log)

        async def read(
            _: Slice, rows: Sequence[TableChanges] = rows
        ) -> AsyncIterator[TableChanges]:
            for changes in rows:
                yield changes

        part = Slice(log=log, start=offsets, end=offsets, cut=None, read=read)
        try:
            await sink.apply(part)
        except Fenced:
            continue
        return len(left)
    raise Fenced(
        "the target moves faster than its rows can be repaired",
        hint="pause the table during the repair: headwater pause PIPELINE/TABLE",
        table=str(repair.subject.target),
    )


async def _check_form(repair: TargetRepair, log: Log) -> None:
    """Raises if the table has another form by now: rows of the compared one would take its new
    columns away again. A target that moves on after its offsets were read is fenced."""
    for stored in repair.subject.sources:
        if await newest_schema(log, stored.topic) != stored.schema:
            raise SinkRejected(
                "the table got another form after it was compared",
                hint="headwater verify PIPELINE/TABLE --repair goes by its new form",
                table=str(repair.subject.target),
            )


async def _load_offsets(repair: TargetRepair, sink: Sink) -> AppliedOffsets:
    found = await sink.committed_offsets(repair.subject.topics) or {}
    return {part: applied for part, applied in found.items() if part in repair.ends}


async def _moved_since(
    repair: TargetRepair, offsets: AppliedOffsets, log: Log, after_log: AfterLog
) -> set[int] | None:
    """Returns digests of keys applied since the comparison; None if there was a truncate."""
    reader = SliceReader(
        log, after_log=after_log, fetch_bytes=FETCH_BYTES, skipped=dict[TopicPartition, set[int]]
    )
    behind = {part: at for part, at in offsets.items() if at.next_offset > repair.ends[part]}
    start = {part: AppliedOffset(at.topic_id, repair.ends[part]) for part, at in behind.items()}
    moved: set[int] = set()
    part = Slice(log=log, start=start, end=behind, cut=None, read=reader.read)
    async with aclosing(reader.read(part)) as read:
        async for changes in read:
            if changes.is_truncate:
                return None
            keys, _ = repair.shape.digests(repair.shape.project(changes.rows))
            moved.update(keys.tolist())
    return moved


async def _rows(
    repair: TargetRepair,
    keys: Mapping[int, DifferingKey],
    offsets: AppliedOffsets,
    log: Log,
    after_log: AfterLog,
) -> list[TableChanges]:
    """Yields deletes of rows that should not exist, and the log's rows. If deleted rows are kept, a
    row without a delete in the log is left alone: its delete time is unknown."""
    rows: list[TableChanges] = []
    extra = [
        each for each in keys.values() if each.kind is DifferenceKind.EXTRA and each.key is not None
    ]
    if repair.deleted is not DeletedRows.GONE:
        extra = [each for each in extra if each.end_us != THERE]
    if extra:
        rows.append(_extra_deletes(repair, extra, offsets))
    places = [each.place for each in keys.values() if each.place is not None]
    for changes in await changes_at(log, places, after_log):
        projected = repair.shape.project(changes.rows)
        current = replace(changes, schema=repair.subject.schema, rows=projected, before=None)
        rows.append(current)
        rows += _ends(repair, current, keys, offsets)
    return rows


def _ends(
    repair: TargetRepair,
    current: TableChanges,
    keys: Mapping[int, DifferingKey],
    offsets: AppliedOffsets,
) -> list[TableChanges]:
    """Returns the deletes of rows that were deleted again."""
    digests, _ = repair.shape.digests(current.rows)
    ends_us = np.array([keys[each].end_us for each in digests.tolist()], np.int64)
    is_gone = ends_us != THERE
    if not is_gone.any():
        return []
    partition = current.log_partition
    assert partition is not None, "changes of the log have offsets"
    gone = current.rows.filter(pa.array(is_gone))
    return [_delete_changes(repair, gone, ends_us[is_gone], partition, offsets)]


def _extra_deletes(
    repair: TargetRepair, extra: Sequence[DifferingKey], offsets: AppliedOffsets
) -> TableChanges:
    schema = repair.subject.schema
    given = pa.RecordBatch.from_pylist(
        [dict(each.key or {}) for each in extra],
        schema=pa.schema([schema.arrow.field(name) for name in schema.key]),
    )
    ends_us = np.array([max(each.end_us, 0) for each in extra], np.int64)
    return _delete_changes(
        repair, repair.shape.project(given), ends_us, next(iter(offsets)), offsets
    )


def _delete_changes(
    repair: TargetRepair,
    rows: pa.RecordBatch,
    ends_us: Int64Array,
    partition: TopicPartition,
    offsets: AppliedOffsets,
) -> TableChanges:
    count = rows.num_rows
    return TableChanges(
        schema=repair.subject.schema,
        rows=rows,
        operations=pa.array(np.full(count, Operation.DELETE, np.uint8)),
        source={"ts_us": pa.array(ends_us)},
        log_partition=partition,
        log_offsets=pa.array(np.full(count, offsets[partition].next_offset - 1)),
    )
