"""A small world for the two loops: a scripted source, a target in memory, and one fuse for all."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater.connectors.source import Control
from headwater.core_log.foundation.errors import Diagnostic, Fenced
from headwater.core_log.model.changes import (
    ChangeBatch,
    Operation,
    Positions,
    TableChanges,
    source_times,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.journal.generations import NONE, Generations
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.dead_letters import RejectedRecords
from headwater.pipelines.loops.deliver.deliver import Delivery, deliver
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.loops.deliver.slicer import SliceLimits, Slicer
from headwater.pipelines.loops.ingest.encoder import Encoder
from headwater.pipelines.loops.ingest.ingest import IngestLimits, ingest
from headwater.pipelines.loops.ingest.table_topics import TopicRules
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Sink, Slice, SplitReader
from tests.fakes import SimulatedClock
from tests.memory_log import Fuse, MemoryLog

PIPELINE = "shop"
Change = tuple[str, str, int, str]
"""Table, Debezium's letter of the operation, key and value."""
Transaction = Sequence[Sequence[Change]]
"""Of the source: one or more batches."""

OPERATIONS = {
    "r": Operation.READ,
    "c": Operation.INSERT,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
}


def schema_of(table: str) -> TableSchema:
    columns = (Column("id", pa.int64(), is_nullable=False), Column("value", pa.string()))
    return TableSchema(TableId("public", table), columns, ("id",))


def changes_of(table: str, changes: Sequence[Change], *, commit: int) -> TableChanges:
    schema = schema_of(table)
    is_truncate = changes[0][1] == "t"
    ids = [None if is_truncate else key for _, _, key, _ in changes]
    values = [None if letter in "dt" else value for _, letter, _, value in changes]
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), pa.array(values, pa.string())], schema=schema.arrow
        ),
        operations=pa.array([OPERATIONS[letter] for _, letter, _, _ in changes], pa.uint8()),
        source={"connector": "script", **source_times(commit * 1_000_000)},
        commits=str(commit),
        indexes=pa.array(range(len(changes)), pa.int64()),
    )


def tables_of(changes: Sequence[Change], *, commit: int) -> tuple[TableChanges, ...]:
    """Runs of one table, with truncates by themselves."""
    runs: list[list[Change]] = []
    for change in changes:
        is_new = not runs or runs[-1][-1][0] != change[0] or "t" in (runs[-1][-1][1], change[1])
        if is_new:
            runs.append([])
        runs[-1].append(change)
    return tuple(changes_of(run[0][0], run, commit=commit) for run in runs)


def fold(script: Sequence[Transaction]) -> dict[str, dict[int, str]]:
    """What the source's tables hold after everything."""
    tables: dict[str, dict[int, str]] = {}
    for transaction in script:
        for table, letter, key, value in (change for batch in transaction for change in batch):
            rows = tables.setdefault(table, {})
            if letter == "t":
                rows.clear()
            elif letter == "d":
                rows.pop(key, None)
            else:
                rows[key] = value
    return tables


class SourceWithoutCatalog:
    """What a source says of itself when nobody asks."""

    async def control(self, control: Control) -> None:
        raise NotImplementedError

    async def discover(self) -> Sequence[TableSchema]:
        return []

    async def examine(self) -> Sequence[Diagnostic]:
        return []

    async def drop(self) -> Sequence[str]:
        return []


class ScriptedSource(SourceWithoutCatalog):
    """Its position is how many transactions it has emitted."""

    def __init__(self, script: Sequence[Transaction], fuse: Fuse) -> None:
        self.script, self.fuse = script, fuse
        self.acknowledged = 0

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for number in range(int(resume_from.get("stream", 0)), len(self.script)):
            batches = self.script[number]
            for place, batch in enumerate(batches):
                self.fuse.before()
                is_last = place == len(batches) - 1
                positions = {"stream": str(number + 1)} if is_last else {}
                yield ChangeBatch(tables_of(batch, commit=number), positions)
                self.fuse.done()

    async def acknowledge(self, positions: Positions) -> None:
        self.fuse.before()
        self.acknowledged = int(positions["stream"])
        self.fuse.done()


class MemoryTarget:
    """A database: what a slice did to it is there as a whole or not at all."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, str]] = {}
        self.offsets: dict[TopicPartition, AppliedOffset] = {}
        self.applied: list[tuple[TopicPartition, int]] = []
        """Every change that ever took effect, by its place in the log."""


class MemorySink:
    def __init__(self, target: MemoryTarget, fuse: Fuse) -> None:
        self.target, self.fuse = target, fuse

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        return dict(self.target.offsets)

    async def apply(self, part: Slice) -> None:
        tables = {name: dict(rows) for name, rows in self.target.tables.items()}
        places = []
        async for changes in part.changes():
            rows = tables.setdefault(changes.schema.table.name, {})
            assert changes.log_partition is not None and changes.log_offsets is not None
            places += [(changes.log_partition, at) for at in changes.log_offsets.to_pylist()]
            for row, operation in zip(
                changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True
            ):
                if operation == Operation.TRUNCATE:
                    rows.clear()
                elif operation == Operation.DELETE:
                    rows.pop(row["id"], None)
                else:
                    rows[row["id"]] = row["value"]
        self.fuse.before()
        for place, start in part.start.items():
            if self.target.offsets.get(place, AppliedOffset(start.topic_id, 0)) != start:
                raise Fenced("somebody else has moved the target")
        self.target.tables = tables
        self.target.offsets |= part.end
        self.target.applied += places
        self.fuse.done()

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        return []

    async def examine(self) -> Sequence[Diagnostic]:
        return []

    async def drop(self) -> Sequence[str]:
        return []

    async def close(self) -> None:
        pass


class World:
    """A log and a target that outlive every crash of what runs between them."""

    def __init__(self, script: Sequence[Transaction], *, partitions: int = 1) -> None:
        self.script, self.partitions = script, partitions
        self.log, self.target = MemoryLog(), MemoryTarget()
        self.clock = SimulatedClock(1_700_000_000_000)
        self.reports: list[Any] = []
        self.source = ScriptedSource(script, Fuse())

    @property
    def rules(self) -> TopicRules:
        config = {"cleanup.policy": "compact"}
        return TopicRules(PIPELINE, "{pipeline}.{schema}.{table}", self.partitions, config)

    async def run(self, fuse: Fuse) -> None:
        """The source to its end, and then the sink to the log's end."""
        self.log.fuse = fuse
        for topic in internal_topics(history_ms=1_000):
            await self.log.ensure_topic(topic)
        await self.ingest(fuse)
        await self.deliver(fuse)

    async def ingest(self, fuse: Fuse) -> None:
        self.source = self.new_source(fuse)
        await self.ingest_from(self.source)

    async def ingest_from(self, source: ScriptedSource) -> None:
        await ingest(
            PIPELINE,
            source,
            self.log,
            new_encoder=self.encoder,
            limits=IngestLimits(batch_wait_ms=0, transaction_bytes_max=1 << 20),
            clock=self.clock,
            report=self.reports.append,
        )

    async def deliver(self, fuse: Fuse, *, records: int = 1) -> None:
        sink = MemorySink(self.target, fuse)
        await deliver(self.delivery(sink, records=records), until_end=True)

    def new_source(self, fuse: Fuse) -> ScriptedSource:
        return ScriptedSource(self.script, fuse)

    def encoder(self, generations: Generations = NONE) -> Encoder:
        return Encoder(
            self.log,
            topics=replace(self.rules, generations=generations),
            wire=WireSettings(),
            before_log=Untouched(),
            compression=Compression.NONE,
        )

    def delivery(
        self, sink: Sink, *, records: int, split_reader: SplitReader | None = None
    ) -> Delivery:
        rejected = RejectedRecords(
            self.log,
            PIPELINE,
            "memory",
            stop_after=StopAfter(),
            clock=self.clock,
            report=self.reports.append,
        )
        reader = SliceReader(
            self.log, after_log=Unrouted(), fetch_bytes=200, skipped=rejected.skipped_offsets
        )
        slicer = Slicer(
            self.log,
            PIPELINE,
            limits=SliceLimits(records=records, bytes=1 << 20, wait_ms=0),
            read=reader.read,
            clock=self.clock,
            split_reader=split_reader,
        )
        return Delivery(
            pipeline=PIPELINE,
            task="memory",
            sink=sink,
            log=self.log,
            slicer=slicer,
            reader=reader,
            rejected=rejected,
            topic_of=self.rules.name_of,
            desired=lambda: DesiredTaskState(PIPELINE),
            isolates_tables=True,
            keeps_group=True,
            clock=self.clock,
            report=self.reports.append,
        )


class Untouched:
    def apply(self, changes: TableChanges) -> TableChanges:
        return changes

    def follow(self, stored: TableSchema) -> None:
        pass

    def check(self, now: TableSchema, before: TableSchema) -> None:
        pass

    hides_anything = False

    def check_renamed(self, now: TableSchema, former: TableSchema, *, is_gone: bool) -> None:
        pass


class Unrouted:
    is_sql = filters = False

    def prepare(self) -> None:
        pass

    def apply(self, changes: TableChanges, *, may_have_gaps: bool) -> list[TableChanges]:
        return [changes]
