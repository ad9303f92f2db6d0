"""The source's side of a comparison: its position, and its rows as targets would get them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.source import Snapshotable, Source, SourceSnapshot
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import LogUnavailable, RecordsRejected, RowsRejected
from headwater.core_log.model.changes import Operation, Positions, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.codec import RowCodec, codec_for
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.replacements import StoredReplacement
from headwater.pipelines.loops.assembly import wire_of
from headwater.pipelines.loops.deliver.slice_reader import AfterLog
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.time_travel.history.as_of import (
    STREAM,
    PositionAsOf,
    before,
    parse_position,
)
from headwater.pipelines.time_travel.history.cut_points import (
    CutPoint,
    find_cut_point,
    newest_cut_point,
)
from headwater.pipelines.time_travel.verify.result import IncomparableRows, deletes_of
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of

REACH_MS, REACH_POLL_S = 60_000, 0.25
"""Time in which the log must reach the source's position."""
LOOK_PAUSE_MS_MAX = 30_000


@runtime_checkable
class SnapshotableSource(Source, Snapshotable, Protocol):
    """A source that can be read at one position."""


@dataclass(frozen=True, slots=True)
class SourceSide:
    """A source at one position, while its snapshot is open."""

    loaded: LoadedPipeline
    log: Log
    clock: Clock
    after_log: RowTransforms
    source: SnapshotableSource
    snapshot: SourceSnapshot
    is_running: bool
    replacements: Mapping[TableId, StoredReplacement] = field(default_factory=dict)
    """The last re-read of each table before the snapshot."""
    incomparable: dict[TableId, IncomparableRows] = field(default_factory=dict)
    """By the target's table, from the last pass over its `rows`."""

    async def cut_point(self, partitions: Sequence[TopicPartition]) -> CutPoint:
        """Returns the end up to which the log is read for this comparison."""
        if not self.snapshot.positions:
            return await newest_cut_point(self.log, partitions)
        position = self.snapshot.positions[STREAM]
        as_of = before(position)
        await self._reach(as_of)
        return await find_cut_point(self.log, self.loaded.name, as_of, partitions, is_recent=True)

    async def _reach(self, wanted: PositionAsOf) -> None:
        """Waits until the log has all earlier changes."""
        deadline = self.clock.monotonic_ms() + REACH_MS
        while True:
            is_followed = self.is_running
            positions = await load_positions(self.log, self.loaded.name)
            reached = positions.get(STREAM, "")
            parsed = parse_position(reached)
            if parsed is not None and wanted.is_reached(parsed):
                return
            if not is_followed:
                has_changes = await self._has_changes_since(positions)
                if has_changes is False:
                    return
                is_followed = has_changes is None
            if not is_followed or self.clock.monotonic_ms() >= deadline:
                raise LogUnavailable(
                    "the log has not reached the source's position",
                    hint="try again when it has caught up: headwater status"
                    if is_followed
                    else f"run the pipeline: headwater run {self.loaded.path.name}",
                    source=wanted.position,
                    log=reached,
                )
            await asyncio.sleep(REACH_POLL_S)

    async def _has_changes_since(self, reached: Positions) -> bool | None:
        """Returns whether changes came since; a source that cannot say so may have changed. None if
        another process follows the source."""
        ask = self.snapshot.has_changes_since
        return True if ask is None else await ask(reached)

    def columns(self, subject: ComparedTable) -> tuple[str, ...]:
        """Returns the columns that are compared: a dropped one stays in older records of the log,
        and nothing is written for it."""
        gone = set[str]()
        for stored in subject.sources:
            there = self.snapshot.columns(stored.schema.table)
            kept = tuple(
                column
                for column in stored.schema.columns
                if there is None or column.name in there or column.name in stored.schema.key
            )
            remaining = self.after_log.schema(replace(stored.schema, columns=kept))
            gone |= set(self.after_log.schema(stored.schema).names) - set(remaining.names)
        return tuple(name for name in subject.schema.names if name not in gone)

    async def rows(self, subject: ComparedTable) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yields rows after all steps between source and target."""
        spec = self.loaded.spec
        before_log = MasksAndDrops(spec.transform, salt=salt_of(spec.pipeline))
        for stored in subject.sources:
            before_log.follow(stored.schema)
        incomparable = IncomparableRows()
        for stored in subject.sources:
            codec, table = codec_for(wire_of(self.loaded), topic=stored.topic), stored.schema.table

            def through(
                changes: TableChanges, codec: Any = codec, topic: str = stored.topic
            ) -> list[TableChanges]:
                now_us = self.clock.now_ms() * 1_000
                decoded, unread = readable(codec, before_log.apply(changes), now_us=now_us)
                made, rejected = without_rejected(self.after_log, decoded, topic=topic)
                for lost in (*unread, *rejected):
                    self._lose(incomparable, lost, topic=topic)
                return made

            async for changes in self.snapshot.rows(table):
                if not len(changes):
                    continue
                for each in await run_in_thread(partial(through, changes), changes.rows.nbytes):
                    is_there = pc.not_equal(each.operations, int(Operation.DELETE))
                    yield each.filter(is_there).rows
            for rejected in self.snapshot.rejected(table):
                self._lose(incomparable, before_log.apply(rejected), topic=stored.topic)
        self.incomparable[subject.target] = incomparable

    def _lose(self, into: IncomparableRows, rows: TableChanges, *, topic: str) -> None:
        """Adds rejected rows by the keys that targets would have."""
        made, rejected = without_rejected(self.after_log, deletes_of(rows), topic=topic)
        into.add(made)
        into.nameless += sum(map(len, rejected))

    async def pause(self) -> None:
        """Waits until a polled source has been polled again."""
        every_ms = min(getattr(self.loaded.source.settings, "every_ms", 0), LOOK_PAUSE_MS_MAX)
        await asyncio.sleep(every_ms * 2 / 1_000)


def without_rejected(
    after_log: AfterLog, rows: TableChanges, *, topic: str
) -> tuple[list[TableChanges], list[TableChanges]]:
    """Yields the source's rows as targets get them, without those that a transform rejects, which
    are dead letters."""
    lost: list[TableChanges] = []
    while len(rows):
        numbers = pa.array(np.arange(len(rows)))
        placed = replace(rows, log_partition=TopicPartition(topic, 0), log_offsets=numbers)
        try:
            return after_log.apply(placed, may_have_gaps=False), lost
        except RecordsRejected as error:
            is_lost = np.zeros(len(rows), np.bool_)
            is_lost[list(error.reasons)] = True
            lost.append(rows.filter(pa.array(is_lost)))
            rows = rows.filter(pa.array(~is_lost))
    return [], lost


def readable(
    codec: RowCodec, changes: TableChanges, *, now_us: int
) -> tuple[TableChanges, list[TableChanges]]:
    """Yields rows as readers of the log get them, without those that the value format or a column
    cannot hold."""
    lost: list[TableChanges] = []
    while len(changes):
        try:
            encoded = codec.encode(changes, now_us=now_us)
            assert encoded.changes is None, "rows that are there have a record each"
            decoded = codec.decode(
                encoded.keys, encoded.values, declare_nan_columns(changes.schema)
            )
        except RowsRejected as error:
            is_lost = np.zeros(len(changes), np.bool_)
            is_lost[list(error.reasons)] = True
            lost.append(changes.filter(pa.array(is_lost)))
            changes = changes.filter(pa.array(~is_lost))
        else:
            return decoded, lost
    return changes, lost
