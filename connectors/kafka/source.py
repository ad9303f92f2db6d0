"""Topics of another cluster as a source: fetches and decodes records, and emits them with their
offsets."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.connectors.left_out_tables import LeftOutTables
from headwater.connectors.source import Control, Remark, SourceContext
from headwater.core_log.foundation.errors import (
    DecodeError,
    Diagnostic,
    DiskFull,
    LogUnavailable,
    OffsetOutOfRange,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
    UnreadableBatch,
)
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.changes import (
    ChangeBatch,
    Positions,
    Reject,
    TableChanges,
    source_times,
)
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from headwater.connectors.kafka.json_rows import TopicBatch, TopicReader
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.topic_admin import TopicDescription
    from headwater.core_log.records.record_views import RecordColumns

FETCH_WAIT_MS = 500
EXAMINE_FOR_MS = 5_000
NO_TOPIC, UNMATCHED = "no topic of the cluster matches `topics`", "unmatched names"
STARTED = "started"
"""Part of the position since the first look, which may have found no topic."""
CONTENT_BYTES_MAX = 64 << 10
"""Largest part of a bad record that is kept in its dead letter."""


class KafkaSource:
    """Exactly once: offsets are positions. Reads only committed records without a consumer group,
    so no group is disturbed and nothing stays behind at the cluster.

    Only the commit time of Debezium's `source` block is kept. Without Connect's schemas, columns
    are inferred from the first values; new fields are added as columns, and values that do not fit
    are rejected.
    """

    Settings = KafkaSourceSettings

    def __init__(self, settings: KafkaSourceSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context
        self._wanted = Patterns(settings.topics)

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        log = self._connect(self._settings.retry_for_ms)
        reading = PartitionReader(self._settings, self._context, resume_from)
        left_out = LeftOutTables(self._context, matched_by="topics")
        try:
            refreshed_ms: int | None = None
            ends: dict[TopicPartition, int] | None = None
            while ends is None or not reading.has_reached(ends):
                now_ms = self._context.clock.monotonic_ms()
                if refreshed_ms is None or now_ms - refreshed_ms >= self._settings.refresh_every_ms:
                    refreshed_ms = now_ms
                    topics = await self._topics(log)
                    self._say_unmatched(topics)
                    reading.release()
                    if found := await reading.scan(log, topics):
                        yield ChangeBatch((), found)
                if self._context.until_end and ends is None:
                    bounds = await log.bounds(reading.offsets)
                    ends = {each: bound.stable for each, bound in bounds.items()}
                    continue
                if not reading.wanted:
                    await asyncio.sleep(FETCH_WAIT_MS / 1_000)
                    continue
                fetched = await self._fetch(log, reading.wanted)
                batch = reading.batch(fetched)
                while batch and (refused := await left_out.find_refused(batch.tables)):
                    batch = reading.leave_out(refused, fetched)
                if batch:
                    yield batch
                if left_out.errors:
                    left_out.check_some_left(reading.tables())
        except LogUnavailable as error:
            raise SourceUnavailable(error.problem, hint=error.hint, **error.facts) from error
        finally:
            await log.close()

    async def acknowledge(self, positions: Positions) -> None:
        """Does nothing: the cluster keeps its records by its own retention."""

    async def control(self, control: Control) -> None:
        raise SourceRejected(
            "a Kafka source supports no signals: it reads a topic from its position on",
            hint="headwater offsets reset PIPELINE reads it again",
            kind=control.kind,
        )

    async def discover(self) -> Sequence[TableSchema]:
        """Returns the tables of topics that have records, by the first of them."""
        log = self._connect(self._settings.retry_for_ms)
        try:
            settings = self._settings.model_copy(update={"start": "earliest"})
            reading = PartitionReader(settings, self._context, {})
            await reading.scan(log, await self._topics(log))
            bounds = await log.bounds(reading.offsets)
            waiting = {each for each, bound in bounds.items() if bound.stable > bound.start}
            while waiting:
                wanted = {each: reading.offsets[each] for each in waiting}
                fetched = await self._fetch(log, wanted)
                reading.batch(fetched)
                waiting -= {
                    each
                    for each in waiting
                    if reading.schema_of(each.topic) or reading.offsets[each] >= bounds[each].stable
                }
            return [schema for schema in reading.schemas() if schema is not None]
        finally:
            await log.close()

    async def row_estimates(self) -> Mapping[TableId, int]:
        """Returns the numbers of records; several may be of one row."""
        log = self._connect(self._settings.retry_for_ms)
        try:
            reading, rows = PartitionReader(self._settings, self._context, {}), dict[TableId, int]()
            topics = await self._topics(log)
            partitions = [
                TopicPartition(topic.name, part.partition)
                for topic in topics
                for part in topic.partitions
            ]
            for partition, bound in (await log.bounds(partitions)).items():
                if count := bound.stable - bound.start:
                    table = reading.table_of(partition.topic)
                    rows[table] = rows.get(table, 0) + count
            return rows
        finally:
            await log.close()

    async def examine(self) -> Sequence[Diagnostic]:
        log = self._connect(EXAMINE_FOR_MS)
        try:
            if await self._topics(log):
                return ()
            return (Diagnostic(NO_TOPIC, self._topics_hint(), is_fatal=False),)
        except (LogUnavailable, DiskFull) as error:
            return (Diagnostic(error.statement, error.hint),)
        finally:
            await log.close()

    async def drop(self) -> Sequence[str]:
        return ()

    def _connect(self, retry_for_ms: int) -> "KafkaLog":
        from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings

        return KafkaLog(
            KafkaSettings(
                bootstrap=list(self._settings.bootstrap),
                security=self._settings.security.beside(self._context.directory),
                first_answer_ms_max=FIRST_ANSWER_MS,
                retry_for_ms=retry_for_ms,
            )
        )

    async def _topics(self, log: "KafkaLog") -> "list[TopicDescription]":
        return [
            topic
            for topic in await log.topics.all()
            if not topic.is_internal
            and not topic.name.startswith("__")
            and self._wanted.matches(topic.name)
        ]

    def _say_unmatched(self, topics: "Sequence[TopicDescription]") -> None:
        """Reports unmatched names as a warning; such a topic may be created later."""
        if not topics and self._context.until_end:
            raise SourceRejected(NO_TOPIC, hint=self._topics_hint())
        missing = self._wanted.find_unmatched([topic.name] for topic in topics)
        finding = None
        if missing:
            finding = Diagnostic(
                f"`topics` names missing topics: the cluster has no {', '.join(missing)}",
                self._topics_hint(),
                is_fatal=False,
                left_out=tuple(missing),
            )
        self._context.report(Remark(UNMATCHED, finding))

    def _topics_hint(self) -> str:
        return f"headwater topics ls --bootstrap {self._settings.bootstrap[0]}"

    async def _fetch(
        self, log: "KafkaLog", wanted: Mapping[TopicPartition, int]
    ) -> Sequence[Fetched]:
        limit = FetchLimit(bytes_max=self._settings.fetch_bytes, wait_ms_max=FETCH_WAIT_MS)
        try:
            return await log.fetch(wanted, limit=limit, isolation=Isolation.COMMITTED)
        except OffsetOutOfRange as error:
            raise PositionLost(
                "the cluster no longer holds the records that come next",
                hint=f"headwater offsets reset {self._context.pipeline}",
                **error.facts,
            ) from error


class PartitionReader:
    """The position in every partition during one iteration, and the topics' readers."""

    def __init__(
        self, settings: KafkaSourceSettings, context: SourceContext, resume_from: Positions
    ) -> None:
        self._settings, self._context, self._stored = settings, context, dict(resume_from)
        self._is_first = not any(
            name == STARTED or name.startswith("topic/") for name in resume_from
        )
        self._readers: dict[str, TopicReader] = {}
        self._topics: dict[TableId, str] = {}
        self._left_out: set[str] = set()
        """Topics that are not read until they are released."""
        self._before: tuple[dict[TopicPartition, int], dict[str, str]] = ({}, {})
        """Offsets and positions before the newest batch."""
        self.offsets: dict[TopicPartition, int] = {}

    async def scan(self, log: "KafkaLog", topics: "Iterable[TopicDescription]") -> dict[str, str]:
        """Adds partitions that were not read so far; returns the changed parts of the position."""
        found: dict[str, str] = {STARTED: self._settings.start} if self._is_first else {}
        fresh: list[TopicPartition] = []
        for topic in sorted(topics, key=lambda each: f"topic/{each.name}" not in self._stored):
            self._check_table(topic.name)
            found |= self._identify(topic)
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition)
                if partition in self.offsets:
                    continue
                stored = self._stored.get(name_of(partition))
                if stored is None:
                    fresh.append(partition)
                else:
                    self.offsets[partition] = offset_in(stored)
        bounds = await log.bounds(fresh) if fresh else {}
        at_end = self._is_first and self._settings.start == "latest"
        for partition in fresh:
            offset = bounds[partition].stable if at_end else bounds[partition].start
            self.offsets[partition] = offset
            found[name_of(partition)] = str(offset)
        self._is_first = False
        self._stored |= found
        return found

    def batch(self, fetched: Sequence[Fetched]) -> ChangeBatch | None:
        """Returns a batch; None if there are no records, and offsets then move with the next
        batch."""
        self._before = dict(self.offsets), dict(self._stored)
        tables: list[TableChanges] = []
        rejects: list[Reject] = []
        positions: dict[str, str] = {}
        for each in fetched:
            if each.partition.topic in self._left_out:
                continue
            for found in _readable(each, self.offsets[each.partition]):
                if isinstance(found, UnreadableBatch):
                    rejects.append(self._reject_of(each.partition, found))
                elif len(found):
                    self._decode(each.partition, found, tables, rejects)
            self.offsets[each.partition] = each.next_offset
            positions[name_of(each.partition)] = str(each.next_offset)
        if not tables and not rejects:
            return None
        for topic, reader in self._readers.items():
            schema_text = reader.schema_text()
            if schema_text and self._stored.get(f"schema/{topic}") != schema_text:
                positions[f"schema/{topic}"] = self._stored[f"schema/{topic}"] = schema_text
        return ChangeBatch(tuple(tables), positions, tuple(rejects))

    def leave_out(
        self, tables: Iterable[TableId], fetched: Sequence[Fetched]
    ) -> ChangeBatch | None:
        """The newest batch without the topics of those tables, which are as if they had never been
        fetched."""
        self.offsets, self._stored = self._before
        left_out = {topic for topic, reader in self._readers.items() if reader.table in {*tables}}
        for topic in left_out:
            del self._readers[topic]
        self._left_out |= left_out
        return self.batch(fetched)

    def release(self) -> None:
        """They are read again."""
        self._left_out.clear()

    @property
    def wanted(self) -> dict[TopicPartition, int]:
        return {
            partition: at
            for partition, at in self.offsets.items()
            if partition.topic not in self._left_out
        }

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(
            at >= ends[partition] for partition, at in self.wanted.items() if partition in ends
        )

    def schema_of(self, topic: str) -> TableSchema | None:
        return self._reader(topic).schema

    def table_of(self, topic: str) -> TableId:
        return self._reader(topic).table

    def tables(self) -> set[TableId]:
        return {self.table_of(partition.topic) for partition in self.offsets}

    def schemas(self) -> Sequence[TableSchema | None]:
        return [self.schema_of(topic) for topic in sorted({each.topic for each in self.offsets})]

    def _identify(self, topic: "TopicDescription") -> dict[str, str]:
        """Checks the topic's id: a recreated topic of the same name is another topic."""
        name, identity = f"topic/{topic.name}", str(topic.topic_id)
        if not topic.topic_id.int or self._stored.get(name) == identity:
            return {}
        if name in self._stored:
            raise PositionLost(
                "the topic was deleted and recreated",
                hint=f"headwater offsets reset {self._context.pipeline}",
                topic=topic.name,
            )
        return {name: identity}

    def _check_table(self, topic: str) -> None:
        """Rows of two topics would have the same keys in one table, and no order."""
        other = self._topics.setdefault(self.table_of(topic), topic)
        if other != topic:
            raise SourceRejected(
                "two topics have rows of one table",
                hint=f"exclude one in `topics`: '!{topic}'; another pipeline can read it",
                table=str(self.table_of(topic)),
                topics=[other, topic],
            )

    def _reader(self, topic: str) -> "TopicReader":
        from headwater.connectors.kafka.record_formats import reader_of

        if topic not in self._readers:
            schema_text = self._stored.get(f"schema/{topic}", "")
            self._readers[topic] = reader_of(self._settings, topic, schema_text)
        return self._readers[topic]

    def _decode(
        self,
        partition: TopicPartition,
        columns: "RecordColumns",
        tables: list[TableChanges],
        rejects: list[Reject],
    ) -> None:
        reader = self._reader(partition.topic)
        decoded = reader.decode(columns, partition=partition.partition)
        tables += [
            self._changes(partition, columns, topic_batch)
            for topic_batch in decoded.batches
            if len(topic_batch.indices)
        ]
        for index, problem in sorted(decoded.rejected.items()):
            content = columns.values[index].as_py() or columns.keys[index].as_py() or b""
            at = f"{partition.topic}-{partition.partition}#{columns.offsets[index]}"
            rejects.append(Reject(reader.table, content[:CONTENT_BYTES_MAX], problem, at))

    def _reject_of(self, partition: TopicPartition, batch: UnreadableBatch) -> Reject:
        """Returns one reject for the whole batch, because its number of records is unknown."""
        table, facts = self.table_of(partition.topic), batch.facts
        problem = (
            f"{batch.problem}; lost are the offsets {facts['offset']} to {facts['last_offset']}"
        )
        return Reject(
            table, b"", problem, f"{partition.topic}-{partition.partition}#{facts['offset']}"
        )

    def _changes(
        self, partition: TopicPartition, columns: "RecordColumns", topic_batch: "TopicBatch"
    ) -> TableChanges:
        table, indices = topic_batch.schema.table, np.asarray(topic_batch.indices)
        appended_us = pa.array(columns.timestamps_ms[indices].clip(0) * 1_000)
        committed_us = appended_us if topic_batch.committed_us is None else topic_batch.committed_us
        offsets = pa.array(columns.offsets[indices])
        return TableChanges(
            topic_batch.schema,
            topic_batch.rows,
            topic_batch.operations,
            {
                "version": _version(),
                "connector": "kafka",
                "name": self._context.pipeline,
                **source_times(committed_us),
                "snapshot": "false",
                "db": "",
                "sequence": None,
                "schema": table.namespace,
                "table": table.name,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offsets,
            },
            commits=f"{partition.topic}-{partition.partition}",
            indexes=offsets,
        )


def _readable(fetched: Fetched, from_offset: int) -> "Iterator[RecordColumns | UnreadableBatch]":
    """Returns all records if they can be read; else batch by batch, with the error of each
    unreadable one."""
    from headwater.core_log.records import arrow_codec
    from headwater.core_log.records.record_codec import iterate_batches

    partition = fetched.partition
    try:
        yield arrow_codec.decode(fetched.data, from_offset=from_offset, partition=partition)
        return
    except UnreadableBatch:
        batches = iterate_batches(fetched.data)
    for batch in batches:
        try:
            yield arrow_codec.decode(batch, from_offset=from_offset, partition=partition)
        except UnreadableBatch as error:
            yield error


def name_of(partition: TopicPartition) -> str:
    return f"topic/{partition.topic}/{partition.partition}"


def offset_in(stored: str) -> int:
    try:
        return int(stored)
    except ValueError:
        raise DecodeError("the stored position is no offset") from None


@cache
def _version() -> str:
    return version("headwater")
