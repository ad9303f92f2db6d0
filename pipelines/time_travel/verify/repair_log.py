"""Repairs rows of the log from the source, by records beside the source's own."""

from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.source import SourceSnapshot
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import LogUnavailable, SourceRejected
from headwater.core_log.model.changes import ColumnOrValue, Operation, TableChanges, source_times
from headwater.core_log.model.log import Log, TopicPartition, Transaction, Writer
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.pipelines.dead_letters.redrive import is_overtaken, records_of
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.commits import (
    NO_TIME,
    Commit,
    OffsetRange,
    commits_home,
    encode_commit,
)
from headwater.pipelines.journal.generations import load_generations
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.assembly import topic_rules, wire_of
from headwater.pipelines.loops.deliver.slice_reader import AfterLog, changes_at
from headwater.pipelines.loops.ingest.encoder import INCREMENTAL, BeforeLog, Encoder
from headwater.pipelines.time_travel.history.as_of import STREAM
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind, DifferingKey
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns
from headwater.pipelines.time_travel.verify.source_state import readable, without_rejected
from headwater.pipelines.transforms.before_log import MasksAndDrops as Masks
from headwater.pipelines.transforms.before_log import salt_of

ATTEMPTS_MAX = 5
"""Attempts: the source may append to the same keys meanwhile."""


@dataclass(frozen=True, slots=True)
class SourceRepair:
    """Keys of one source table whose rows differ in the log."""

    loaded: LoadedPipeline
    stored: StoredSchema
    shape: ComparedColumns
    after_log: AfterLog
    ends: Ends
    """The compared end of the log: later records are newer than the comparison."""
    keys: Mapping[int, DifferingKey]


class CurrentRow:
    """A row from the log, which is masked already."""

    def apply(self, changes: TableChanges) -> TableChanges:
        return changes

    def follow(self, stored: TableSchema) -> None:
        pass

    def check(self, now: TableSchema, before: TableSchema) -> None:
        pass

    hides_anything = False

    def check_renamed(self, now: TableSchema, former: TableSchema, *, is_gone: bool) -> None:
        pass


class _Overtaken(Exception):
    """The source appended to one of the keys first."""


async def repair_log(
    repair: SourceRepair, snapshot: SourceSnapshot, log: Log, *, clock: Clock
) -> int:
    """Writes the snapshot's rows of these keys, unless newer records exist; returns their
    number."""
    masks = Masks(repair.loaded.spec.transform, salt=salt_of(repair.loaded.spec.pipeline))
    masks.follow(repair.stored.schema)
    writer = await log.writer(f"headwater.{repair.loaded.name}.repair")
    wanted = {at for at, key in repair.keys.items() if key.kind is not DifferenceKind.MISSING}
    block: Mapping[str, ColumnOrValue] = source_times(clock.now_ms() * 1_000)
    count = 0
    async for changes in snapshot.rows(repair.stored.schema.table):
        block = {name: each for name, each in changes.source.items() if not _is_column(each)}
        if not wanted or not len(changes):
            continue
        changes = replace(changes, schema=_as_stored(changes.schema, repair.stored.schema))
        if masks.schema(declare_nan_columns(changes.schema)) != repair.stored.schema:
            raise SourceRejected(
                "the table has another schema than the log",
                hint="let the pipeline read a change of the table, then verify again; if that"
                f" does not help, headwater snapshot start {repair.loaded.name}/"
                f"{repair.stored.schema.table} reads it again",
                table=str(repair.stored.schema.table),
            )
        rows = _rows_of(repair, masks, changes, wanted)
        if len(rows):
            chosen = _place(changes.take(pa.array(rows)), snapshot)
            count += await _write(repair, log, writer, chosen, masks, clock=clock)
    for deletes in await _deletes(repair, log, {**source_times(clock.now_ms() * 1_000), **block}):
        count += await _write(
            repair, log, writer, _place(deletes, snapshot), CurrentRow(), clock=clock
        )
    return count


def _as_stored(schema: TableSchema, stored: TableSchema) -> TableSchema:
    """Removes column ids that the log does not have: they would make another schema."""
    known = {each.name for each in stored.columns if each.id}
    known |= {each.name for each in stored.dropped if each.id}
    columns = tuple(each if each.name in known else replace(each, id=0) for each in schema.columns)
    return replace(schema, columns=columns, id=schema.id if stored.id else 0)


def _is_column(cell: ColumnOrValue) -> bool:
    return isinstance(cell, pa.Array)


def _place(changes: TableChanges, snapshot: SourceSnapshot) -> TableChanges:
    """Returns the snapshot's position, independent of the transaction that wrote the row."""
    source = {**changes.source}
    if "snapshot" in source:
        source["snapshot"] = INCREMENTAL
    commits = snapshot.positions.get(STREAM, "")
    return replace(changes, source=source, commits=commits, indexes=None)


def _rows_of(
    repair: SourceRepair, masks: BeforeLog, changes: TableChanges, wanted: Collection[int]
) -> list[int]:
    """Which rows become those keys in the target: transforms may leave rows out, so that they are
    halved until there is one."""
    codec = codec_for(wire_of(repair.loaded), topic=repair.stored.topic)
    keys = np.array(sorted(wanted), np.uint64)
    found: list[int] = []
    waiting = [(0, len(changes))]
    while waiting:
        start, end = waiting.pop()
        part = masks.apply(changes.slice(start, end - start))
        decoded, _ = readable(codec, part, now_us=0)
        made = [
            repair.shape.digests(repair.shape.project(each.rows))[0]
            for each in without_rejected(repair.after_log, decoded, topic=repair.stored.topic)[0]
        ]
        hits = np.isin(np.concatenate(made), keys) if made else np.zeros(0, np.bool_)
        if len(hits) == end - start:
            found += (np.flatnonzero(hits) + start).tolist()
        elif hits.any():
            middle = (start + end) // 2
            waiting += [(start, middle), (middle, end)] if end - start > 1 else []
            found += [start] if end - start == 1 else []
    return sorted(found)


async def _deletes(
    repair: SourceRepair, log: Log, source: Mapping[str, ColumnOrValue]
) -> list[TableChanges]:
    """Returns deletes of rows that the log has and the source has not; with the key as it stands in
    the log."""
    places = [
        each.place
        for each in repair.keys.values()
        if each.kind is DifferenceKind.MISSING
        and each.place is not None
        and each.place[0].topic == repair.stored.topic
    ]
    schema = repair.stored.schema  # however old the form is that a row was last written in
    return [
        replace(
            changes,
            schema=schema,
            operations=pa.array(np.full(len(changes), Operation.DELETE, np.uint8)),
            rows=_only_key(changes, schema),
            source=source,
            before=None,
            log_partition=None,
            log_offsets=None,
        )
        for changes in await changes_at(log, places, None)
    ]


def _only_key(changes: TableChanges, schema: TableSchema) -> pa.RecordBatch:
    columns = [
        changes.rows.column(column.name).cast(column.type)
        if column.name in schema.key
        else pa.nulls(len(changes), column.type)
        for column in schema.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


async def _write(
    repair: SourceRepair,
    log: Log,
    writer: Writer,
    changes: TableChanges,
    before_log: BeforeLog,
    *,
    clock: Clock,
) -> int:
    """In a transaction of its own that is given up when the source was quicker."""
    for _ in range(ATTEMPTS_MAX):
        bounds = await log.bounds(repair.ends)
        seen = {part: bound.end for part, bound in bounds.items()}
        keys = _keys_of(repair, changes, before_log)
        newer = await _find_appended(log, repair.ends, seen, keys)
        is_left = pc.invert(pc.is_in(keys, value_set=pa.array(sorted(newer), pa.binary())))
        left = changes.filter(is_left)
        if not len(left):
            return 0
        try:
            async with writer.transaction() as transaction:
                await _append(repair, log, transaction, left, before_log, seen, clock=clock)
        except _Overtaken:
            continue
        return len(left)
    raise LogUnavailable(
        "the source keeps changing the rows to repair",
        hint="verify again, or pause the source",
        table=str(repair.stored.schema.table),
    )


def _keys_of(repair: SourceRepair, changes: TableChanges, before_log: BeforeLog) -> pa.BinaryArray:
    codec = codec_for(repair.stored.wire, topic=repair.stored.topic)
    encoded = codec.encode(before_log.apply(changes), now_us=0)
    if encoded.changes is None:
        return encoded.keys
    firsts = np.unique(encoded.changes.to_numpy(), return_index=True)[1]
    return encoded.keys.take(pa.array(firsts))


async def _find_appended(log: Log, start: Ends, end: Ends, keys: pa.BinaryArray) -> set[bytes]:
    """Those of the keys that were appended to since the comparison."""
    found: set[bytes] = set()
    for partition, offset in start.items():
        async for columns in read_decided(log, partition, from_offset=offset):
            found |= {key for key, at, _ in records_of(columns, keys) if at < end[partition]}
    return found


async def _append(
    repair: SourceRepair,
    log: Log,
    transaction: Transaction,
    changes: TableChanges,
    before_log: BeforeLog,
    seen: Ends,
    *,
    clock: Clock,
) -> None:
    now_ms = clock.now_ms()
    encoder = Encoder(
        log,
        topics=topic_rules(
            repair.loaded,
            await load_generations(log, repair.loaded.name, [repair.stored.topic]),
        ),
        wire=wire_of(repair.loaded),
        before_log=before_log,
        compression=Compression.ZSTD,
    )
    touched: dict[TopicPartition, OffsetRange] = {}
    keys = set(_keys_of(repair, changes, before_log).to_pylist())
    async with aclosing(encoder.encode(changes, now_ms=now_ms)) as encoded:
        async for batches in encoded:
            for each in batches:
                assert each.is_data, "only rows under a schema that the log has are written"
                place, count = each.partition, each.batch.record_count
                size = len(each.batch.data)
                first = await transaction.append(place, each.batch)
                start = touched[place].end if place in touched else seen[place]
                if await is_overtaken(log, place, keys, start=start, end=first):
                    raise _Overtaken
                offset_range = OffsetRange(first, first + count, count, size)
                touched[place] = (
                    touched[place].extend_to(offset_range) if place in touched else offset_range
                )
    # Without a boundary behind them the records would wait for the next commit.
    topic_ids = {place.topic: await log.topic_id(place.topic) for place in touched}
    commit = Commit(repair.loaded.name, NO_TIME, {}, touched, topic_ids)
    await transaction.append(commits_home(repair.loaded.name), encode_commit(commit, now_ms=now_ms))
