"""The work of a slice for each table of the lake, and where it is done: in this process or in
Spark."""

import asyncio
import math
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import Slice
from headwater.sinks.spark.driver_plan import SparkWork, rewrite_elsewhere
from headwater.sinks.spark.file_rewrite import InProcessWork, truncates_of
from headwater.sinks.spark.lake_table_writer import (
    LakeTableWriter,
    SliceWork,
    StagedTable,
    TableSlice,
)
from headwater.sinks.spark.session import in_thread, is_running, join_current
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink_state import SinkState
from headwater.sinks.spark.table import TopicFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERNAL = "__"
SMALL_TOGETHER = 5
"""Small tables of one slice are applied in this process up to this many times the limit of one."""
SMALL_ROWS, REWRITTEN_ROWS = 200_000, 2_000_000
"""Records of a table that this process always applies, and rows that it always rewrites."""
LOCAL = re.compile(r"local(?:\[(?P<cores>\d+|\*).*\])?")
OWN_BYTES = 40
"""Memory of a change besides its row."""
THREADS = 2
"""Threads that write one table's files in this process."""
HELD_BYTES_MAX = 64 << 20
"""Changes that this process holds: if there are more, the table with most of them is staged."""
ALONE_ROWS = 50_000
"""A topic with so many records is read by itself, so that its records come one after another and
are staged as whole files."""
ROWS_PER_CORE_S, SPARK_START_S = 150_000, 8
"""Records that a core applies, about, here as in Spark; and the time that Spark takes to start."""
ROWS_AGAIN_MAX = 2_000_000
"""Rows of a table that one slice may stage again, besides as many as it stages: ends of pieces that
overlap cost that. If there are more, the keys come in no order, and Spark, which orders keys before
it writes, gets the table's next large slice."""


@dataclass(slots=True)
class TableWork:
    """The work of a slice for one table."""

    topics: set[str] = field(default_factory=set)
    work: SliceWork | None = None
    """None where all of it has been staged."""
    id: str = ""
    bounds: Mapping[TopicPartition, Bounds] | None = None
    """The log's offsets when other processes began to read it."""
    staged: StagedTable | None = None
    """The part that is written already."""
    failure: Exception | None = None
    """The error that ended its staging."""
    rows_staged: int = 0
    changes: list[TableChanges] = field(default_factory=list)
    """Changes that this process has read and not staged."""
    bytes: int = 0
    """Their size."""

    def add(self, changes: TableChanges, *, empties: bool) -> None:
        assert changes.log_partition is not None, "changes that were read have a log position"
        self.topics.add(changes.log_partition.topic)
        if self.failure is not None:
            return
        if empties:
            self.take()  # there is no need to keep what nobody will see
        self.changes.append(changes)
        self.bytes += size_of(changes)

    def take(self) -> Sequence[TableChanges]:
        """All that is held, which then is not any more."""
        taken, self.changes, self.bytes = self.changes, [], 0
        return taken

    def slice_of(self, part: Slice) -> TableSlice:
        """The part of the slice that comes from the table's topics."""
        ends = {each: applied for each, applied in part.end.items() if each.topic in self.topics}
        feeds = {
            topic: TopicFeed(
                next(applied.topic_id for each, applied in ends.items() if each.topic == topic),
                1 + max(each.partition for each in ends if each.topic == topic),
            )
            for topic in self.topics
        }
        return TableSlice({each: part.start[each] for each in ends}, ends, feeds, part.cut)


@dataclass(slots=True)
class WorkSplit:
    """Splits a slice: what Spark does sooner is read by its executors, the rest in this process."""

    settings: SparkSettings
    table: Callable[[TableId], LakeTableWriter]
    _unordered: set[TableId] = field(default_factory=set)
    """Tables whose keys come in no order."""

    async def of(self, part: Slice, head: SinkState) -> dict[TableId, TableWork]:
        large = await self._large(part, head)
        topics = {topic for theirs in large.values() for topic in theirs}
        found = await self._gather(of_topics(part, topics, are_wanted=False), head, large)
        for table, mine in found.items():
            if table not in large and mine.changes:
                mine.work = self._in_process(mine.take())
        for table, theirs in large.items():
            more = found[table].topics if table in found else set()
            found[table] = await self._spark_work(part, theirs | more)
        return found

    async def _gather(
        self, part: Slice, head: SinkState, large: Container[TableId]
    ) -> dict[TableId, TableWork]:
        """In memory what is little; of more, what came first is staged meanwhile."""
        found: dict[TableId, TableWork] = {}
        staging = asyncio.ensure_future(asyncio.sleep(0))
        try:
            async for changes in _one_by_one(part):
                table = changes.schema.table
                mine = found.setdefault(table, TableWork())
                mine.add(changes, empties=changes.is_truncate and self._empties(changes))
                if table in large:
                    mine.take()
                if sum(each.bytes for each in found.values()) > HELD_BYTES_MAX:
                    await staging
                    most = max(found, key=lambda each: found[each].bytes)
                    staging = asyncio.ensure_future(
                        self._stage(self.table(most), found[most], found[most].take(), part, head)
                    )
            await staging
        finally:
            staging.cancel()
            await wait_for_end(staging)
        return found

    async def _stage(
        self,
        table_writer: LakeTableWriter,
        mine: TableWork,
        changes: Sequence[TableChanges],
        part: Slice,
        head: SinkState,
    ) -> None:
        """Stages a table; a failure waits until all other tables have had their chance."""
        table_slice = mine.slice_of(part)

        def work() -> None:
            if mine.staged is None:
                mine.staged = table_writer.open(table_slice, passed=head.passed)
            table_writer.stage(mine.staged, self._in_process(changes), table_slice.feeds)

        try:
            await in_thread(work)
        except Exception as failure:
            mine.failure = failure
            mine.take()
            return
        assert mine.staged is not None, "it was opened before"
        mine.rows_staged += sum(map(len, changes))
        if mine.staged.rows_written_again > ROWS_AGAIN_MAX + mine.rows_staged:
            self._unordered.add(table_writer.table)

    def _in_process(self, changes: Sequence[TableChanges]) -> InProcessWork:
        return InProcessWork(
            changes,
            threads=THREADS,
            elsewhere=partial(rewrite_elsewhere, self._session),
            rows_max=self._rewritten_rows(),
        )

    def _empties(self, truncate: TableChanges) -> bool:
        chosen = self.settings.of(str(truncate.schema.table))
        is_mirror = chosen.mode == "mirror" and bool(truncate.schema.key)
        return is_mirror and chosen.deletes == "hard" and not truncate.truncated_where

    def _small_rows(self) -> float:
        """Up to how many records of a table this process applies."""
        if self.settings.small_rows is not None:
            return self.settings.small_rows
        return max(SMALL_ROWS, rows_not_worth_spark(self.settings.master))

    def _rewritten_rows(self) -> float:
        """Up to how many this process rewrites."""
        if self.settings.rewritten_rows is not None:
            return self.settings.rewritten_rows
        return max(REWRITTEN_ROWS, rows_not_worth_spark(self.settings.master))

    async def _large(self, part: Slice, head: SinkState) -> dict[TableId, set[str]]:
        """Returns tables whose changes Spark reads, and their topics."""
        if part.split_reader is None:
            return {}
        records: dict[str, int] = {}
        for each, applied in part.end.items():
            count = applied.next_offset - part.start[each].next_offset
            records[each.topic] = records.get(each.topic, 0) + count
        found: dict[TableId, set[str]] = {}
        small = self._small_rows()
        room = small * SMALL_TOGETHER
        for topic, count in sorted(records.items(), key=lambda pair: pair[1]):
            if topic.startswith(INTERNAL):
                continue
            room -= count
            is_unordered = topic in head.feeds and head.feeds[topic][0] in self._unordered
            if count <= (SMALL_ROWS if is_unordered else small) and room >= 0:
                continue
            schemas = await part.split_reader.schemas(topic)
            if schemas:
                table = schemas[-1].table
                found.setdefault(table, set()).add(topic)
        for topic, (table, _) in head.feeds.items():
            if table in found and topic in records:
                found[table] |= {topic}
        return found

    async def _spark_work(self, part: Slice, topics: set[str]) -> TableWork:
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
        return TableWork(topics, work, bounds=bounds)

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


def rows_not_worth_spark(master: str) -> float:
    """Up to how many records of one slice are done here before Spark on this machine had started
    and done them by all cores; none once it runs."""
    local = LOCAL.fullmatch(master)
    if local is None or is_running():
        return 0
    here, there = THREADS, local_cores(local["cores"])
    if there <= here:
        return math.inf
    return SPARK_START_S * ROWS_PER_CORE_S * here * there / (there - here)


def local_cores(cores: str | None) -> int:
    if cores is None:
        return 1
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def size_of(changes: TableChanges) -> int:
    """About what they take in memory."""
    return int(changes.rows.nbytes) + len(changes) * OWN_BYTES


async def _one_by_one(part: Slice) -> AsyncIterator[TableChanges]:
    """All changes of a slice; of topics with many, one topic after the other."""
    records = Counter[str]()
    for each, applied in part.end.items():
        records[each.topic] += applied.next_offset - part.start[each].next_offset
    alone = [topic for topic, count in records.items() if count >= ALONE_ROWS]
    for topics, are_wanted in [(alone, False), *(([topic], True) for topic in alone)]:
        chosen = of_topics(part, topics, are_wanted=are_wanted)
        if all(each.topic.startswith(INTERNAL) for each in chosen.end) and alone:
            continue
        async for changes in chosen.changes():
            if len(changes) and changes.log_partition in chosen.end:
                yield changes


def of_topics(part: Slice, topics: Collection[str], *, are_wanted: bool) -> Slice:
    chosen = {each for each in part.end if (each.topic in topics) is are_wanted}
    return replace(
        part,
        start={each: part.start[each] for each in chosen},
        end={each: part.end[each] for each in chosen},
    )
