"""A small world whose topics get new generations, and a target that counts every change."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import ValueFormat, WireSettings
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import NONE, Generations
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.pipelines.loops.ingest.encoder import Encoder
from headwater.pipelines.loops.migration.migrate import MigrationRules, TopicMove, migrate
from headwater.sinks.sink import AppliedOffsets, Slice
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import (
    OPERATIONS,
    PIPELINE,
    Change,
    MemorySink,
    MemoryTarget,
    Transaction,
    World,
    schema_of,
)

OP_CODES = {operation: letter for letter, operation in OPERATIONS.items()}
TABLE = "orders"
Seen = tuple[str, int | None, str | None]
"""Letter, key and value of a change."""


class Nothing:
    """No masks at all."""

    def schema(self, schema: TableSchema) -> TableSchema:
        return schema

    def apply(self, changes: TableChanges) -> TableChanges:
        return changes

    def follow(self, stored: TableSchema) -> None:
        pass

    def check(self, now: TableSchema, before: TableSchema) -> None:
        pass

    hides_anything = False

    def check_renamed(self, now: TableSchema, former: TableSchema, *, is_gone: bool) -> None:
        pass


class CountingTarget(MemoryTarget):
    """An append table beside the mirror: what came, in the order in which it came."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []


class CountingSink(MemorySink):
    """Both tables change together, or not at all."""

    def __init__(self, target: CountingTarget, fuse: Fuse) -> None:
        super().__init__(target, fuse)
        self.counting = target

    async def apply(self, part: Slice) -> None:
        seen: list[Seen] = []
        async for changes in part.changes():
            for row, operation in zip(
                changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True
            ):
                seen.append((OP_CODES[operation], row["id"], row["value"]))
        for place, applied in part.start.items():
            if self.target.offsets.get(place, applied) != applied:
                raise Fenced("somebody else has moved the target")
        self.fuse.before()
        self.counting.seen += seen
        self.target.offsets |= part.end
        self.fuse.done()

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        return {each: at for each, at in self.target.offsets.items() if each.topic in topics}


class MigratingWorld(World):
    """Its one table can be asked to have another number of partitions, or another format."""

    def __init__(self, script: Sequence[Transaction], *, partitions: int = 1) -> None:
        super().__init__(script, partitions=partitions)
        self.target = self.counting = CountingTarget()
        self.wire = WireSettings()

    def encoder(self, generations: Generations = NONE) -> Encoder:
        return Encoder(
            self.log,
            topics=replace(self.rules, generations=generations),
            wire=self.wire,
            before_log=Nothing(),
            compression=Compression.NONE,
        )

    async def read(self, until: int, fuse: Fuse) -> None:
        """The source as far as its so many first transactions."""
        self.log.fuse = fuse
        for topic in internal_topics(history_ms=1_000):
            await self.log.ensure_topic(topic)
        whole, self.script = self.script, self.script[:until]
        try:
            await self.ingest(fuse)
        finally:
            self.script = whole

    async def write(self, fuse: Fuse, *, records: int = 1) -> None:
        self.log.fuse = fuse
        sink = CountingSink(self.counting, fuse)
        await deliver(self.delivery(sink, records=records), until_end=True)

    async def generations(self) -> Generations:
        return Generations.of(await load_positions(self.log, PIPELINE))

    async def topic(self) -> str:
        return (await self.generations()).present(self.rules.first_name_of(schema_of(TABLE).table))

    async def migrate(
        self, partitions: int, fuse: Fuse, *, value: ValueFormat = "debezium-json"
    ) -> None:
        """Nothing is done where the topic is like that already."""
        self.log.fuse = fuse
        await self.log.writer(f"headwater.{PIPELINE}")  # ends what a crash has left open
        first = self.rules.first_name_of(schema_of(TABLE).table)
        former = await self.topic()
        self.partitions, self.wire = partitions, WireSettings(value=value)
        is_there = await self.log.partition_count(former) == partitions
        if is_there and former != first:
            return
        settings = TopicSettings(name="next", partitions=partitions, config=dict(self.rules.config))
        move = TopicMove(first, former, settings, schema_of(TABLE))
        rules = MigrationRules(self.wire, Nothing(), Compression.NONE)
        await migrate(
            PIPELINE, self.log, [move], rules, clock=self.clock, report=self.reports.append
        )


def flattened(script: Sequence[Transaction]) -> list[Change]:
    return [change for transaction in script for batch in transaction for change in batch]


def expected(script: Sequence[Transaction]) -> Counter[Seen]:
    return Counter(
        (letter, None if letter == "t" else key, None if letter in "dt" else value)
        for _, letter, key, value in flattened(script)
    )
