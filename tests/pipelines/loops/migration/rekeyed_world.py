"""A small world whose one table gets another key, with a mirror and a list of every change."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import (
    ChangeBatch,
    Operation,
    Positions,
    TableChanges,
    source_times,
)
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import ValueFormat, WireSettings
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.pipelines.loops.migration.migrate import MigrationRules, TopicMove, migrate
from headwater.sinks.sink import Slice
from tests.memory_log import Fuse
from tests.pipelines.loops.migration.migrations import (
    OP_CODES,
    TABLE,
    MigratingWorld,
    Nothing,
    Seen,
)
from tests.pipelines.pipeline_in_memory import (
    OPERATIONS,
    PIPELINE,
    Change,
    MemorySink,
    MemoryTarget,
    ScriptedSource,
    Transaction,
    schema_of,
)

BY_VALUE = replace(schema_of(TABLE), key=("value",))
Event = tuple[str, int | None, str | None]
"""Letter, id and value of a change of a table whose key is `value`; a delete says no more."""


def by_value(script: Sequence[Transaction]) -> list[list[list[Event]]]:
    """What a source tells of the same history under that key: who gets another value is a row
    that went and one that came."""
    held: dict[int, str] = {}
    return [
        [[event for change in batch for event in _events(change, held)] for batch in transaction]
        for transaction in script
    ]


def _events(change: Change, held: dict[int, str]) -> Iterator[Event]:
    _, letter, id, value = change
    if letter == "t":
        held.clear()
        yield letter, None, None
    elif letter == "d":
        if id in held:
            yield letter, None, held.pop(id)
    else:
        if id in held:
            yield "d", None, held[id]
            letter = "c"
        held[id] = value
        yield letter, id, value


class SourceByValue(ScriptedSource):
    """The same position, and the same history under another key."""

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        told = by_value(self.script)
        for number in range(int(resume_from.get("stream", 0)), len(told)):
            for place, batch in enumerate(told[number]):
                self.fuse.before()
                is_last = place == len(told[number]) - 1
                tables = tuple(_changes(event, commit=number) for event in batch)
                yield ChangeBatch(tables, {"stream": str(number + 1)} if is_last else {})
                self.fuse.done()


def _changes(event: Event, *, commit: int) -> TableChanges:
    letter, id, value = event
    columns = [pa.array([id], pa.int64()), pa.array([value], pa.string())]
    return TableChanges(
        schema=BY_VALUE,
        rows=pa.RecordBatch.from_arrays(columns, schema=BY_VALUE.arrow),
        operations=pa.array([OPERATIONS[letter]], pa.uint8()),
        source={"connector": "script", **source_times(commit * 1_000_000)},
        commits=str(commit),
        indexes=pa.array([0], pa.int64()),
    )


class KeyedTarget(MemoryTarget):
    """A mirror that tells its rows apart by the key that came last, and every change that came."""

    def __init__(self) -> None:
        super().__init__()
        self.key: tuple[str, ...] = ()
        self.mirror: list[dict[str, object]] = []
        self.seen: list[Seen] = []


class KeyedSink(MemorySink):
    """Both change together with the stands, or not at all."""

    def __init__(self, target: KeyedTarget, fuse: Fuse) -> None:
        super().__init__(target, fuse)
        self.keyed = target

    async def apply(self, part: Slice) -> None:
        key, seen = self.keyed.key, list(self.keyed.seen)
        mirror = {tuple(row[name] for name in key): row for row in self.keyed.mirror}
        async for changes in part.changes():
            if changes.schema.key != key:
                key = changes.schema.key
                mirror = {tuple(row[name] for name in key): row for row in mirror.values()}
            for row, operation in zip(
                changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True
            ):
                seen.append((OP_CODES[operation], row["id"], row["value"]))
                if operation == Operation.TRUNCATE:
                    mirror.clear()
                elif operation == Operation.DELETE:
                    mirror.pop(tuple(row[name] for name in key), None)
                else:
                    mirror[tuple(row[name] for name in key)] = row
        self.fuse.before()
        for place, applied in part.start.items():
            if self.target.offsets.get(place, applied) != applied:
                raise Fenced("somebody else has moved the target")
        self.keyed.key, self.keyed.seen = key, seen
        self.keyed.mirror = list(mirror.values())
        self.target.offsets |= part.end
        self.fuse.done()


class RekeyedWorld(MigratingWorld):
    """Its one table is told apart by `id`, and by `value` from `migrate` on."""

    def __init__(self, script: Sequence[Transaction], *, partitions: int = 1) -> None:
        super().__init__(script, partitions=partitions)
        self.target = self.keyed = KeyedTarget()
        self.is_rekeyed = False

    def new_source(self, fuse: Fuse) -> ScriptedSource:
        return (SourceByValue if self.is_rekeyed else ScriptedSource)(self.script, fuse)

    async def write(self, fuse: Fuse, *, records: int = 1) -> None:
        self.log.fuse = fuse
        await deliver(self.delivery(KeyedSink(self.keyed, fuse), records=records), until_end=True)

    async def migrate(
        self, partitions: int, fuse: Fuse, *, value: ValueFormat = "debezium-json"
    ) -> None:
        """To the other key. Nothing is done where it has been done."""
        self.log.fuse = fuse
        await self.log.writer(f"headwater.{PIPELINE}")  # ends what a crash has left open
        first, former = self.rules.first_name_of(BY_VALUE.table), await self.topic()
        self.partitions, self.wire = partitions, WireSettings(value=value)
        self.is_rekeyed = True
        if former != first:
            return
        settings = TopicSettings(name="next", partitions=partitions, config=dict(self.rules.config))
        moves = [TopicMove(first, former, settings, BY_VALUE)]
        rules = MigrationRules(self.wire, Nothing(), Compression.NONE)
        await migrate(
            PIPELINE, self.log, moves, rules, clock=self.clock, report=self.reports.append
        )
