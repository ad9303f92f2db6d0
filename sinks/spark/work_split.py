"""The work of a slice for each table of the lake, and where it is done: in this process or in
Spark."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import Slice
from headwater.sinks.spark.driver_plan import SparkWork, rewrite_elsewhere
from headwater.sinks.spark.job_group import join_current
from headwater.sinks.spark.lake_table_writer import InProcessWork, SliceWork, TableSlice
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink_state import SinkState
from headwater.sinks.spark.table import TopicFeed
from headwater.sinks.spark.truncate_epochs import truncates_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERNAL = "__"
SMALL_TOGETHER = 5
"""Small tables of one slice are applied in this process up to this many times the limit of one."""
THREADS = 2
"""Threads that write one table's files in this process."""


@dataclass(slots=True)
class TableWork:
    """The work of a slice for one table."""

    work: SliceWork
    topics: frozenset[str]
    id: str = ""
    bounds: Mapping[TopicPartition, Bounds] | None = None
    """The log's offsets when other processes began to read it."""

    def stretch(self, part: Slice) -> TableSlice:
        """The table's part of the slice."""
        ends = {each: stand for each, stand in part.end.items() if each.topic in self.topics}
        feeds = {
            topic: TopicFeed(
                next(stand.topic_id for each, stand in ends.items() if each.topic == topic),
                1 + max(each.partition for each in ends if each.topic == topic),
            )
            for topic in self.topics
        }
        return TableSlice({each: part.start[each] for each in ends}, ends, feeds, part.cut)


@dataclass(frozen=True, slots=True)
class WorkSplit:
    """Splits a slice: large parts are read by Spark's executors, small ones in this process."""

    settings: SparkSettings

    async def of(self, part: Slice, head: SinkState) -> dict[TableId, TableWork]:
        large = await self._large(part, head)
        topics = {topic for theirs in large.values() for topic in theirs}
        pieces: dict[TableId, list[TableChanges]] = {}
        async for changes in of_topics(part, topics, are_wanted=False).changes():
            if len(changes) and changes.log_partition in part.end:
                mine = pieces.setdefault(changes.schema.table, [])
                if changes.is_truncate and self._empties(changes):
                    mine.clear()  # rows that will never be visible need not be kept
                mine.append(changes)
        found = {
            table: TableWork(self._gather(mine), _topics_of(mine))
            for table, mine in pieces.items()
            if table not in large
        }
        for table, theirs in large.items():
            more = _topics_of(pieces.get(table, ()))
            found[table] = await self._spark_portion(part, theirs | more)
        return found

    def _gather(self, pieces: Sequence[TableChanges]) -> InProcessWork:
        return InProcessWork(
            pieces,
            threads=THREADS,
            elsewhere=partial(rewrite_elsewhere, self._session),
            rows_max=self.settings.rewritten_rows,
        )

    def _empties(self, truncate: TableChanges) -> bool:
        chosen = self.settings.of(str(truncate.schema.table))
        is_mirror = chosen.mode == "mirror" and bool(truncate.schema.key)
        return is_mirror and chosen.deletes == "hard" and not truncate.truncated_where

    async def _large(self, part: Slice, head: SinkState) -> dict[TableId, frozenset[str]]:
        """Returns tables whose changes Spark reads, and their topics."""
        if part.split_reader is None:
            return {}
        records: dict[str, int] = {}
        for each, stand in part.end.items():
            count = stand.next_offset - part.start[each].next_offset
            records[each.topic] = records.get(each.topic, 0) + count
        found: dict[TableId, frozenset[str]] = {}
        room = self.settings.small_rows * SMALL_TOGETHER
        for topic, count in sorted(records.items(), key=lambda pair: pair[1]):
            if topic.startswith(INTERNAL):
                continue
            room -= count
            if count <= self.settings.small_rows and room >= 0:
                continue
            schemas = await part.split_reader.schemas(topic)
            if schemas:
                table = schemas[-1].table
                found[table] = found.get(table, frozenset()) | {topic}
        for topic, (table, _) in head.feeds.items():
            if table in found and topic in records:
                found[table] |= {topic}
        return found

    async def _spark_portion(self, part: Slice, topics: frozenset[str]) -> TableWork:
        assert part.split_reader is not None, "without one nothing is large"
        mine = of_topics(part, topics, are_wanted=True)
        bounds = await part.log.bounds(mine.end)
        newest = [(await part.split_reader.schemas(topic))[-1] for topic in sorted(topics)]
        emptied = of_topics(mine, part.truncated, are_wanted=True)
        truncates = await part.split_reader.truncates(emptied.start, emptied.end)
        work = SparkWork(
            self._session,
            part.split_reader,
            newest[-1],
            start=mine.start,
            end=mine.end,
            bounds=bounds,
            split_rows=self.settings.split_rows,
            truncates=truncates_of(truncates),
        )
        return TableWork(work, topics, bounds=bounds)

    def _session(self) -> "SparkSession":
        from headwater.sinks.spark.session import SessionChoices, open_session

        chosen = self.settings
        session = open_session(
            SessionChoices(
                master=chosen.master,
                memory_bytes=chosen.memory_bytes,
                scratch=chosen.scratch,
                python=chosen.python,
                config=dict(chosen.spark),
            )
        )
        return join_current(session)


def _topics_of(pieces: Iterable[TableChanges]) -> frozenset[str]:
    return frozenset(
        piece.log_partition.topic for piece in pieces if piece.log_partition is not None
    )


def of_topics(part: Slice, topics: Collection[str], *, are_wanted: bool) -> Slice:
    chosen = {each for each in part.end if (each.topic in topics) is are_wanted}
    return replace(
        part,
        start={each: part.start[each] for each in chosen},
        end={each: part.end[each] for each in chosen},
    )
