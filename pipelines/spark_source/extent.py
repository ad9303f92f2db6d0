"""Options of a read as an offset range of every partition."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.model.log import Bounds, Isolation, Log, TopicPartition
from headwater.pipelines.journal.schemas import StoredSchema, read_schemas, schemas_home
from headwater.pipelines.spark_source.options import ReadOptions
from headwater.pipelines.time_travel.history.as_of import (
    AsOf,
    OffsetsAsOf,
    PositionAsOf,
    TimeAsOf,
    parse_as_of,
)
from headwater.pipelines.time_travel.history.commit_index import CommitIndex
from headwater.pipelines.time_travel.history.cut_points import find_cut_point, given_offsets
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

RETRY_FOR_MS = 15_000
UNKNOWN_TOPIC_MS = 1_000
NOW = ("latest", "stable")


def client_settings(options: ReadOptions) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=list(options.bootstrap),
        security=options.security,
        client_id="headwater-spark",
        first_answer_ms_max=FIRST_ANSWER_MS,
        retry_for_ms=RETRY_FOR_MS,
        unknown_topic_for_ms=UNKNOWN_TOPIC_MS,
    )


@asynccontextmanager
async def open_log(options: ReadOptions) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(client_settings(options))
    try:
        yield log
    finally:
        await log.close()


@dataclass(frozen=True, slots=True)
class Extent:
    """The partitions of the chosen topics, as they were when this was asked."""

    partitions: Sequence[TopicPartition]
    topic_ids: Mapping[str, str]
    _log: Log
    _options: ReadOptions
    _clock: Clock

    @classmethod
    async def of(cls, log: Log, options: ReadOptions, *, clock: Clock) -> "Extent":
        ids = {topic: await log.topic_id(topic) for topic in options.topics}
        counts = {topic: await log.partition_count(topic) for topic in options.topics}
        parts = [TopicPartition(topic, each) for topic in ids for each in range(counts[topic])]
        return cls(parts, ids, log, options, clock)

    async def start(self) -> AppliedOffsets:
        """Where a batch begins, and a stream that was never started before."""
        bounds = await self._log.bounds(self.partitions)
        if self._options.start == "earliest":
            return self.identify({part: bounds[part].start for part in self.partitions})
        return self.identify(await self._find("start", self._options.start, bounds))

    async def end(self) -> AppliedOffsets:
        if self._options.as_of is None:
            bounds = await self._log.bounds(self.partitions)
            return self.identify(await self._find("end", self._options.end, bounds))
        as_of = parse_as_of(self._options.as_of, now_ms=self._clock.now_ms())
        if isinstance(as_of, OffsetsAsOf):
            given_offsets(as_of, await self._log.bounds(self.partitions), option="asOf")
        return self.identify(await self._as_of(as_of))

    @property
    def ends_at_moment(self) -> bool:
        """Whether a batch ends at a moment of the source, which compaction may pass."""
        if self._options.as_of is not None:
            return True
        if self._options.end in NOW:
            return False
        as_of = parse_as_of(self._options.end, now_ms=self._clock.now_ms())
        return isinstance(as_of, PositionAsOf)

    async def newest(self) -> AppliedOffsets:
        bounds = await self._log.bounds(self.partitions)
        # Asked later, so that no record below the ends is of a later epoch.
        ranges = await self._log.retained_ranges(self.partitions)
        found = self.identify({part: self._end_of(bounds[part]) for part in self.partitions})
        return {
            part: at._replace(leader_epoch=ranges[part].leader_epoch) for part, at in found.items()
        }

    def identify(self, offsets: Mapping[TopicPartition, int]) -> AppliedOffsets:
        return {part: AppliedOffset(self.topic_ids[part.topic], at) for part, at in offsets.items()}

    def _end_of(self, bound: Bounds) -> int:
        return bound.end if self._options.isolation is Isolation.UNCOMMITTED else bound.stable

    async def _find(
        self, option: str, text: str, bounds: Mapping[TopicPartition, Bounds]
    ) -> Mapping[TopicPartition, int]:
        if text in NOW:
            return {part: self._end_of(bound) for part, bound in bounds.items()}
        match parse_as_of(text, now_ms=self._clock.now_ms()):
            case OffsetsAsOf() as offsets:
                has_open = self._options.isolation is Isolation.UNCOMMITTED
                return given_offsets(offsets, bounds, has_open=has_open, option=option)
            case TimeAsOf(at_ms):
                found = await self._log.offsets_at(self.partitions, timestamp_ms=at_ms)
                return {part: min(at, self._end_of(bounds[part])) for part, at in found.items()}
            case PositionAsOf() as position if option == "start":
                return await self._behind(position)
            case PositionAsOf() as position:
                return await self._as_of(position)

    async def _as_of(self, as_of: AsOf) -> Mapping[TopicPartition, int]:
        """Returns the rows of that moment; refused where compaction has passed it."""
        found: dict[TopicPartition, int] = {}
        for pipeline, partitions in (await self._by_pipeline()).items():
            found |= (await find_cut_point(self._log, pipeline, as_of, partitions)).ends
        return found

    async def _behind(self, position: PositionAsOf) -> Mapping[TopicPartition, int]:
        """Where that begins which the source committed later."""
        found: dict[TopicPartition, int] = {}
        for pipeline, partitions in (await self._by_pipeline()).items():
            found |= await CommitIndex(self._log, pipeline).begins(position, partitions)
        return found

    async def _by_pipeline(self) -> Mapping[str, Sequence[TopicPartition]]:
        """Each knows of its own topics when the source committed what is in them."""
        writers = {topic: await pipeline_of(self._log, topic) for topic in self._options.topics}
        found: dict[str, list[TopicPartition]] = {}
        for part in self.partitions:
            found.setdefault(writers[part.topic], []).append(part)
        return found


async def stored_schemas(log: Log, topic: str) -> list[StoredSchema]:
    """Every schema of a topic, oldest first. Raises ConfigError where there is none."""
    found = await _schemas(log, topic)
    if not found:
        raise ConfigError(
            "the topic has no schema, because no pipeline writes it",
            hint='option("columns", "raw") reads any topic',
            topic=topic,
        )
    return found


async def pipeline_of(log: Log, topic: str) -> str:
    """Returns the pipeline whose commits say which moment of the source a record belongs to."""
    found = await _schemas(log, topic)
    if not found:
        raise ConfigError(
            "the topic has no source times, because no pipeline writes it",
            hint="give offsets, or the time at which records were appended, in `start` and `end`",
            topic=topic,
        )
    return found[0].pipeline


async def _schemas(log: Log, topic: str) -> list[StoredSchema]:
    try:
        every = [each async for each in read_schemas(log, schemas_home(topic))]
    except LogRejected:  # no pipeline has ever written into this log
        every = []
    return [each for each in every if each.topic == topic]
