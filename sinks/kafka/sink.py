"""Writes changes to topics of another cluster, with the sink's offsets in one transaction."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import (
    Diagnostic,
    DiskFull,
    Fenced,
    HeadwaterError,
    LogUnavailable,
    SinkRejected,
    SinkUnavailable,
    failures_named,
)
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.kafka.settings import KafkaSinkSettings
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, SinkContext, Slice

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.writer import KafkaWriter
    from headwater.core_log.records.batch_header import Batch
    from headwater.sinks.kafka.offset_topic import TopicWriter

EXAMINE_FOR_MS = 5_000
GONE_WAIT_MS, GONE_CHECKS_MAX = 50, 400


class KafkaSink:
    """Writes changes to topics of another cluster.

    Exactly once if the cluster has transaction.version 2: rows and offsets commit in one
    transaction of the cluster, and a second sink of the same pipeline and name fences the first. At
    least once on older clusters.

    The offsets are in a compacted topic `headwater.PIPELINE.NAME.applied` of that cluster, and so
    is the table of each topic: a topic takes the rows of one table. In the
    `source` block only the commit time is the source's own, and the connector is `headwater`. A
    truncate is a record with the key `{"__headwater":"truncate"}` in every partition, because
    compacted topics need a key.
    """

    Settings = KafkaSinkSettings

    def __init__(self, settings: KafkaSinkSettings, context: SinkContext) -> None:
        self._settings, self._context = settings, context
        self._name = f"headwater.{context.pipeline}.{context.name}"
        self._log: KafkaLog | None = None
        self._writer: KafkaWriter | None = None
        self._is_writer_stale = False
        """Whether a new writer has to recover from the state that the last one has left."""
        self._offsets: dict[TopicPartition, AppliedOffset] = {}
        self._owners: dict[str, TableId] = {}
        self._outgoing: dict[TableId, TopicWriter] = {}

    @property
    def offsets_topic(self) -> str:
        return f"{self._name}.applied"

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        """Only reads: the first apply decides who writes."""
        from headwater.sinks.kafka.offset_topic import load_remembered

        try:
            if self.offsets_topic not in await self._topics():
                return {}
            remembered = await load_remembered(self._connect(), self.offsets_topic)
        except LogUnavailable as error:
            raise _unavailable(error) from error
        return {
            each: applied for each, applied in remembered.offsets.items() if each.topic in topics
        }

    async def apply(self, part: Slice) -> None:
        try:
            await self._apply(part)
        except LogUnavailable as error:
            self._is_writer_stale = True
            raise _unavailable(error) from error
        except BaseException:
            self._is_writer_stale = True
            raise

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        there = await self._topics()
        return [
            f"create topic {topic} with {self._settings.partitions} partitions"
            for topic in sorted({self._topic_of(schema.table) for schema in schemas})
            if topic not in there
        ]

    async def examine(self) -> Sequence[Diagnostic]:
        log = self._new_log(EXAMINE_FOR_MS)
        try:
            if await log.is_exactly_once():
                return ()
            return (
                Diagnostic(
                    "the cluster does not have transaction.version 2, so this sink is at least "
                    "once",
                    "upgrade the cluster to Apache Kafka 4.0 or newer and its features with it",
                    is_fatal=False,
                ),
            )
        except (LogUnavailable, DiskFull) as error:
            return (Diagnostic(error.statement, error.hint or "correct `bootstrap` of the sink"),)
        finally:
            await log.close()

    async def drop(self) -> Sequence[str]:
        """Deletes the topics that this sink created; other topics stay."""
        from headwater.sinks.kafka.offset_topic import load_remembered

        there = await self._topics()
        if self.offsets_topic not in there:
            return ()
        log = self._connect()
        remembered = await load_remembered(log, self.offsets_topic)
        dropped = [*sorted(remembered.created & there), self.offsets_topic]
        for topic in dropped:
            await log.topics.delete(topic)
        await self._until_gone(set(dropped))
        self._writer = None
        self._owners.clear()
        self._outgoing.clear()
        return [f"topic {topic}" for topic in dropped]

    async def _until_gone(self, topics: set[str]) -> None:
        """Waits until the topics are gone: Apache Kafka answers before every broker knows."""
        for _ in range(GONE_CHECKS_MAX):
            if not topics & await self._topics():
                return
            await asyncio.sleep(GONE_WAIT_MS / 1_000)
        raise SinkUnavailable(
            "the cluster has not deleted the topics in time", topics=sorted(topics)
        )

    async def close(self) -> None:
        """Ends an open transaction first: readers of committed records would wait for it."""
        writer, self._writer = self._writer, None
        log, self._log = self._log, None
        try:
            if writer is not None:
                await writer.close()
        finally:
            if log is not None:
                await log.close()

    async def _apply(self, part: Slice) -> None:
        from headwater.sinks.kafka.offset_topic import encode_offsets

        writer = await self._open()
        self._check_unmoved(part)
        home = TopicPartition(self.offsets_topic, 0)
        async with writer.transaction() as transaction:
            async for changes in part.changes():
                if not len(changes):
                    continue
                now_ms = self._context.clock.now_ms()
                with _failures_of(changes.schema.table):
                    outgoing = await self._outgoing_of(changes.schema.table)
                    for partition, batch in outgoing.encode(
                        changes, pipeline=self._context.pipeline, now_ms=now_ms
                    ):
                        await transaction.append(partition, batch)
            for batch in encode_offsets(part.end, now_ms=self._context.clock.now_ms()):
                await transaction.append(home, batch)
        self._offsets |= part.end

    def _check_unmoved(self, part: Slice) -> None:
        for partition, applied in part.start.items():
            stored = self._offsets.get(partition)
            if stored is not None and stored != applied:
                raise Fenced(
                    "the target was moved by another process",
                    topic=partition.topic,
                    partition=partition.partition,
                    stored=stored.next_offset,
                    expected=applied.next_offset,
                )

    async def _open(self) -> "KafkaWriter":
        """Opens the producer, which fences every earlier writer, so that offsets read afterwards
        are final."""
        from headwater.sinks.kafka.offset_topic import load_remembered, offsets_topic

        if self._writer is None or self._is_writer_stale:
            log = self._connect()
            await log.ensure_topic(offsets_topic(self.offsets_topic))
            self._writer, self._is_writer_stale = await log.writer(self._name), False
            remembered = await load_remembered(log, self.offsets_topic)
            self._offsets, self._owners = remembered.offsets, remembered.owners
        return self._writer

    async def _outgoing_of(self, table: TableId) -> "TopicWriter":
        from headwater.core_log.records.compression import Compression
        from headwater.core_log.rows.codec import codec_for
        from headwater.sinks.kafka.offset_topic import TopicWriter, encode_owner

        if table not in self._outgoing:
            topic = self._topic_of(table)
            owner = self._owners.get(topic, table)
            if owner != table and topic in await self._topics():
                raise SinkRejected(
                    "two tables have the same topic",
                    hint="give `topic` another form; if the other table is gone, delete the topic",
                    table=str(table),
                    other=str(owner),
                    topic=topic,
                )
            if self._owners.get(topic) != table:
                await self._note(encode_owner(topic, table, now_ms=self._context.clock.now_ms()))
                self._owners[topic] = table
                self._outgoing.pop(owner, None)
            self._outgoing[table] = TopicWriter(
                topic,
                table,
                await self._partition_count(topic),
                codec_for(self._settings.wire, topic=topic),
                Compression[self._settings.compression.upper()],
                self._settings.batch_bytes,
            )
        return self._outgoing[table]

    async def _partition_count(self, topic: str) -> int:
        from headwater.sinks.kafka.offset_topic import encode_created

        log, settings = self._connect(), self._settings
        if topic not in await self._topics():
            # before it is created, so that a drop finds it after a failure
            await self._note(encode_created(topic, now_ms=self._context.clock.now_ms()))
            wanted = TopicSettings(
                name=topic, partitions=settings.partitions, config=settings.config
            )
            await log.ensure_topic(wanted)
        return await log.partition_count(topic)

    async def _note(self, batches: "Sequence[Batch]") -> None:
        for batch in batches:
            await self._connect().append(TopicPartition(self.offsets_topic, 0), batch)

    def _topic_of(self, table: TableId) -> str:
        from headwater.sinks.kafka.offset_topic import topic_name

        return topic_name(self._settings.topic, pipeline=self._context.pipeline, table=table)

    async def _topics(self) -> set[str]:
        return {topic.name for topic in await self._connect().topics.all()}

    def _connect(self) -> "KafkaLog":
        if self._log is None:
            self._log = self._new_log(self._settings.retry_for_ms)
        return self._log

    def _new_log(self, retry_for_ms: int) -> "KafkaLog":
        from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings

        return KafkaLog(
            KafkaSettings(
                bootstrap=list(self._settings.bootstrap),
                security=self._settings.security.beside(self._context.directory),
                first_answer_ms_max=FIRST_ANSWER_MS,
                retry_for_ms=retry_for_ms,
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
            )
        )


@contextmanager
def _failures_of(table: TableId) -> Iterator[None]:
    """Names the table. `topic` in an error of a sink is the source's; this one is the target's."""
    try:
        with failures_named(table=str(table)):
            yield
    except HeadwaterError as error:
        named = {"topic": "target_topic"}
        error.facts = {named.get(fact, fact): value for fact, value in error.facts.items()}
        raise


def _unavailable(error: HeadwaterError) -> SinkUnavailable:
    return SinkUnavailable(error.problem, hint=error.hint, **error.facts)
