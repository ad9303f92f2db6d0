"""Slices that are only written down, handed to Spark as if a log were behind them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import AppliedOffsets, Heard, Slice, Truncate
from headwater.sinks.spark.sink import SparkSink
from tests.sinks.spark.targets import LakeBench


@dataclass(slots=True)
class SparkBench:
    """A lake whose slices are all large, however few rows they have."""

    lake: LakeBench

    def __post_init__(self) -> None:
        self.lake.chosen |= {"small_rows": 0}

    def sink(self) -> "SparkSinkOfScripts":
        return SparkSinkOfScripts(self.lake.sink())

    async def rows(self, table: str) -> list[dict[str, Any]]:
        return await self.lake.rows(table)

    def poison(self) -> tuple[Any, dict[str, Any]]:
        return self.lake.poison()


@dataclass(slots=True)
class SparkSinkOfScripts:
    """The sink, and with every slice what reads it elsewhere."""

    inner: SparkSink
    log: Any = field(default_factory=lambda: ScriptedLog())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def apply(self, part: Slice) -> None:
        changes = [each async for each in part.changes()]
        topics = frozenset(each.topic for each in part.end)
        reader = ScriptedReader(changes)
        await self.inner.apply(replace(part, log=self.log, split_reader=reader, truncated=topics))


@dataclass(slots=True)
class ScriptedLog:
    """Compaction has taken deletes below these offsets, the next one each time it is asked."""

    dropped_to: list[int] = field(default_factory=lambda: [0])

    async def bounds(self, partitions: Any) -> Mapping[TopicPartition, Bounds]:
        dropped = self.dropped_to.pop(0) if len(self.dropped_to) > 1 else self.dropped_to[0]
        return {each: Bounds(0, 1 << 40, 1 << 40, dropped, dropped) for each in partitions}


@dataclass(frozen=True, slots=True)
class ScriptedReader:
    """Fulfils `SplitReader`."""

    entries: Sequence[TableChanges]

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        found: list[TableSchema] = []
        for each in self._of(topic):
            if each.schema not in found:
                found.append(each.schema)
        return found

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        """A script has one marker of each; in other partitions it stands for one right behind what
        was written there before."""
        found: list[Truncate] = []
        for topic in sorted({each.topic for each in end}):
            reached = {each: -1 for each in end if each.topic == topic}
            for changes in self._of(topic):
                assert changes.log_partition is not None and changes.log_offsets is not None
                reached[changes.log_partition] = changes.log_offsets[-1].as_py()
                if changes.is_truncate:
                    first = {changes.log_partition: reached[changes.log_partition]}
                    found.append(Truncate(changes, first | reached))
        return found

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        for changes in self.entries:
            part, offsets = changes.log_partition, changes.log_offsets
            assert part is not None and offsets is not None
            if part in end:
                wanted = [
                    start[part].next_offset <= at < end[part].next_offset
                    for at in offsets.to_pylist()
                ]
                yield changes.filter(pa.array(wanted))

    def _of(self, topic: str) -> list[TableChanges]:
        return [
            each
            for each in self.entries
            if each.log_partition is not None and each.log_partition.topic == topic
        ]
