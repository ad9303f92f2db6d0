"""The source's side of a comparison: where it was read, and its rows as targets would get them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.source import Snapshot, Snapshotable, Source
from core_log.changes import Operation, Positions, TableChanges
from core_log.clock import Clock
from core_log.errors import LogUnavailable, RecordsRejected, RowsRejected
from core_log.log import Log, TopicPartition
from core_log.rows.codec import Encoded, RowCodec
from core_log.rows.codecs import codec_for
from core_log.rows.not_numbers import declared
from core_log.table_schema import TableSchema
from pipelines.file.loading import LoadedPipeline
from pipelines.journal.positions import load_positions
from pipelines.journal.schemas import StoredSchema
from pipelines.loops.build import wire_of
from pipelines.loops.busy_work import beside
from pipelines.loops.reading import AfterLog
from pipelines.proving.as_of import STREAM, before, order_of
from pipelines.proving.moments import Moment, moment_of, newest_moment
from pipelines.proving.subjects import Subject
from pipelines.transforms.before_log import BeforeLog, salt_of

REACH_MS, REACH_POLL_S = 60_000, 0.25
"""How long the log may take to come to where the source was read."""
LOOK_PAUSE_MS_MAX = 30_000


@runtime_checkable
class SnapshotableSource(Source, Snapshotable, Protocol):
    """Both at once."""


@dataclass(frozen=True, slots=True)
class SourceSide:
    """A source as it was at one position, as long as its snapshot is open."""

    loaded: LoadedPipeline
    log: Log
    clock: Clock
    after_log: AfterLog
    source: SnapshotableSource
    snapshot: Snapshot
    is_running: bool

    async def moment(self, partitions: Sequence[TopicPartition]) -> Moment:
        """Up to where the log has to be read to be compared with it."""
        if not self.snapshot.positions:
            return await newest_moment(self.log, partitions)
        position = self.snapshot.positions[STREAM]
        await self._reach(position)
        as_of = before(position)
        return await moment_of(self.log, self.loaded.name, as_of, partitions, is_recent=True)

    async def _reach(self, position: str) -> None:
        """Waits until the log has all that came before."""
        wanted = order_of(position)
        if wanted is None:
            before(position)  # which says so
        deadline = self.clock.monotonic_ms() + REACH_MS
        while True:
            is_followed = self.is_running
            positions = await load_positions(self.log, self.loaded.name)
            reached = positions.get(STREAM, "")
            order = order_of(reached)
            if order is not None and wanted is not None and order >= wanted:
                return
            if not is_followed:
                has_changes = await self._has_changes_since(positions)
                if has_changes is False:
                    return
                is_followed = has_changes is None
            if not is_followed or self.clock.monotonic_ms() >= deadline:
                raise LogUnavailable(
                    "the log has not come to where the source is",
                    hint="try again when it has caught up: headwater status"
                    if is_followed
                    else f"run the pipeline: headwater run {self.loaded.path.name}",
                    source=position,
                    log=reached,
                )
            await asyncio.sleep(REACH_POLL_S)

    async def _has_changes_since(self, reached: Positions) -> bool | None:
        """None where somebody follows the source; what cannot say so may have changed."""
        ask = self.snapshot.has_changes_since
        return True if ask is None else await ask(reached)

    async def rows(self, subject: Subject) -> AsyncGenerator[pa.RecordBatch, None]:
        """Through everything that rows go through on their way into a target."""
        spec = self.loaded.spec
        before_log = BeforeLog(spec.transform, salt=salt_of(spec.pipeline))
        for stored in subject.sources:
            codec = codec_for(wire_of(self.loaded), topic=stored.topic)

            def through(
                changes: TableChanges, codec: Any = codec, stored: StoredSchema = stored
            ) -> list[TableChanges]:
                changes = before_log.apply(changes)
                encoded = codec.encode(changes, now_us=self.clock.now_ms() * 1_000)
                decoded = _readable(codec, encoded, declared(changes.schema))
                return without_rejected(self.after_log, decoded, topic=stored.topic)

            async for changes in self.snapshot.rows(stored.schema.table):
                if not len(changes):
                    continue
                for each in await beside(partial(through, changes), changes.rows.nbytes):
                    is_there = pc.not_equal(each.operations, int(Operation.DELETE))
                    yield each.filter(is_there).rows

    async def pause(self) -> None:
        """Until a source that is asked on a schedule has been asked again."""
        every_ms = min(getattr(self.loaded.source.settings, "every_ms", 0), LOOK_PAUSE_MS_MAX)
        await asyncio.sleep(every_ms * 2 / 1_000)


def without_rejected(after_log: AfterLog, rows: TableChanges, *, topic: str) -> list[TableChanges]:
    """Rows of the source as targets get them. Those that a transform rejects are passed over: a
    sink has set their records aside, and the reading of the log names them."""
    while True:
        numbers = pa.array(np.arange(len(rows)))
        placed = replace(rows, log_partition=TopicPartition(topic, 0), log_offsets=numbers)
        try:
            return after_log.apply(placed, may_have_gaps=False)
        except RecordsRejected as error:
            keep = np.ones(len(rows), np.bool_)
            keep[list(error.reasons)] = False
            rows = rows.filter(pa.array(keep))
            if not len(rows):
                return []


def _readable(codec: RowCodec, encoded: Encoded, schema: TableSchema) -> TableChanges:
    """Without records that no column holds, which readers of the log pass over as well."""
    keys, values = encoded.keys, encoded.values
    while True:
        try:
            return codec.decode(keys, values, schema)
        except RowsRejected as error:
            keep = np.ones(len(values), np.bool_)
            keep[list(error.reasons)] = False
            keys, values = keys.filter(pa.array(keep)), values.filter(pa.array(keep))
