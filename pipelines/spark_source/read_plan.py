"""The driver's plan before executors read the log: columns, offsets, splits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import LogRejected, PositionLost
from headwater.core_log.model.log import Bounds, Log, TopicPartition
from headwater.pipelines.journal.generations import Generations, TopicSwitch, load_generations
from headwater.pipelines.journal.schemas import every_topic_of
from headwater.pipelines.loops.deliver.offset_check import epoch_ends
from headwater.pipelines.spark_source.extent import Extent, open_log, stored_schemas
from headwater.pipelines.spark_source.options import ReadOptions
from headwater.pipelines.spark_source.source import ARROW
from headwater.pipelines.spark_source.typed import TypedColumns
from headwater.pipelines.time_travel.history.cut_points import check_order
from headwater.sinks.sink import AppliedOffset, AppliedOffsets
from headwater.sinks.spark.splits import Split, splits_of

Said = Mapping[str, Mapping[str, Any]]
"""Offsets as Spark keeps them: by topic its id, and by partition where to go on."""
TOPIC_ID, EPOCHS = "id", "epochs"


async def columns(options: ReadOptions) -> StructType:
    if options.columns == "raw":
        return from_arrow_schema(ARROW)
    async with open_log(options) as log:
        stored = await stored_schemas(log, (await in_present(log, options)).topic)
    typed = TypedColumns.of([each.schema for each in stored])
    return from_arrow_schema(typed.arrow, prefer_timestamp_ntz=True)


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """The offsets that one task reads, and those that must not have gone from the log until it is
    through."""

    split: Split
    start: int
    """Where the reading of the whole partition begins."""
    deletes_dropped_to: int
    """As it was when that began."""
    is_state: bool
    """Whether a moment of the past is read, which compaction makes another one once it passes."""
    end: int
    """Where the reading of the whole partition ends."""


async def batch(options: ReadOptions) -> list[ReadSplit]:
    async with open_log(options) as log:
        extent = await _extent(log, options)
        start, end = await extent.start(), await extent.end()
        check_order(_offsets(start), _offsets(end))
        bounds = await log.bounds(end)
    return _parts(start, end, bounds, options, is_state=extent.ends_at_moment)


async def first_offsets(options: ReadOptions) -> dict[str, Any]:
    async with open_log(options) as log:
        return _describe(await (await _extent(log, options)).start())


async def newest_offsets(options: ReadOptions) -> dict[str, Any]:
    async with open_log(options) as log:
        return _describe(await (await _extent(log, options)).newest())


async def _extent(log: Log, options: ReadOptions) -> Extent:
    return await Extent.of(log, await in_present(log, options), clock=SystemClock())


async def plan_between(options: ReadOptions, start: Said, end: Said) -> list[ReadSplit]:
    """Raises PositionLost where a stream cannot go on from what Spark remembers of it."""
    first, last = _parse_offsets(start), _parse_offsets(end)
    async with open_log(options) as log:
        if options.columns == "typed":
            first, last = await cross_generations(log, first, last)
        bounds = await log.bounds(last)
        ends = await epoch_ends(
            log,
            {
                part: at
                for part, at in first.items()
                if part in last and last[part].topic_id == at.topic_id
            },
        )
    for partition, applied in last.items():
        _check_goes_on(
            partition, first.get(partition), applied, bounds[partition], ends.get(partition)
        )
    begin = {
        part: first.get(part, AppliedOffset(applied.topic_id, 0)) for part, applied in last.items()
    }
    return _parts(begin, last, bounds, options, is_state=False)


def _parts(
    start: AppliedOffsets,
    end: AppliedOffsets,
    bounds: Mapping[TopicPartition, Bounds],
    options: ReadOptions,
    *,
    is_state: bool,
) -> list[ReadSplit]:
    return [
        ReadSplit(
            each,
            start[each.partition].next_offset,
            bounds[each.partition].deletes_dropped_to,
            is_state,
            end[each.partition].next_offset,
        )
        for each in splits_of(start, end, bounds, records=options.split_records)
    ]


async def check_was_whole(options: ReadOptions, part: ReadSplit) -> None:
    """When a task is through: tasks read at different times, and compaction goes on meanwhile."""
    partition = part.split.partition
    async with open_log(options) as log:
        bound = (await log.bounds([partition]))[partition]
    if part.is_state and bound.cleaned_to > part.end:
        problem = "compaction has passed that point in time during the read"
    elif bound.deletes_dropped_to > max(part.deletes_dropped_to, part.start):
        problem = "the log removed deletes before they were read"
    else:
        return
    raise PositionLost(
        problem,
        hint="start the query again, from the present log",
        topic=partition.topic,
        partition=partition.partition,
        offset=part.end,
        cleaned_to=bound.cleaned_to,
        deletes_dropped_to=bound.deletes_dropped_to,
    )


def _check_goes_on(
    partition: TopicPartition,
    first: AppliedOffset | None,
    last: AppliedOffset,
    bound: Bounds,
    epoch_end: int | None,
) -> None:
    if first is None:  # a partition that is new
        return
    at = first.next_offset
    if first.topic_id != last.topic_id:
        problem = "the topic was deleted and recreated since the query read it"
    elif epoch_end is not None and at > epoch_end:
        problem = "the log was restored from a copy that is older than what the query has read"
    elif at < bound.start:
        problem = "the log has removed the next records of the query"
    elif at < bound.deletes_dropped_to and at > 0:
        problem = "deletes that the query has not seen have aged out of the log"
    else:
        return
    raise PositionLost(
        problem,
        hint="start the query again with another checkpoint, from the present log",
        topic=partition.topic,
        partition=partition.partition,
        next_offset=at,
        log_start=bound.start,
    )


def _offsets(offsets: AppliedOffsets) -> Mapping[TopicPartition, int]:
    return {partition: applied.next_offset for partition, applied in offsets.items()}


def _describe(offsets: AppliedOffsets) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, number), applied in offsets.items():
        said = found.setdefault(topic, {TOPIC_ID: applied.topic_id})
        said[str(number)] = applied.next_offset
        if applied.leader_epoch >= 0:
            said.setdefault(EPOCHS, {})[str(number)] = applied.leader_epoch
    return found


def _parse_offsets(said: Said) -> AppliedOffsets:
    return {
        TopicPartition(topic, int(number)): AppliedOffset(
            parts[TOPIC_ID], offset, parts.get(EPOCHS, {}).get(number, -1)
        )
        for topic, parts in said.items()
        for number, offset in parts.items()
        if number not in (TOPIC_ID, EPOCHS)
    }


async def generations_of(log: Log, topic: str) -> Generations:
    """Returns the generations in the pipeline that writes the topic. Raises ConfigError where none
    does."""
    pipeline = (await stored_schemas(log, topic))[0].pipeline
    return await load_generations(log, pipeline, await every_topic_of(log, pipeline))


async def in_present(log: Log, options: ReadOptions) -> ReadOptions:
    """Typed columns are those of a table: they are read from where its changes go now, which holds
    all that came before. A raw read is of the very topic that was named."""
    if options.columns == "raw":
        return options
    generations = await generations_of(log, options.topic)
    present = generations.present(generations.first(options.topic))
    return replace(options, topics=(present,))


async def cross_generations(
    log: Log, first: AppliedOffsets, last: AppliedOffsets
) -> tuple[AppliedOffsets, AppliedOffsets]:
    """A stream that stands in former topics reads them to their ends, and goes on in the next ones
    behind what was filled in from these."""
    begin, end = dict(first), dict(last)
    former, reached = {each.topic for each in first}, {each.topic for each in last}
    for topic in reached if former - reached else ():
        for switch in _steps(await generations_of(log, topic), topic, former):
            end |= await _rest_of(log, switch, begin)
            topic_id = await log.topic_id(switch.topic)
            for number, at in switch.ends.items():
                part = TopicPartition(switch.topic, number)
                begin.setdefault(part, AppliedOffset(topic_id, at))
    return {part: begin[part] for part in end if part in begin}, end


def _steps(generations: Generations, topic: str, former: Collection[str]) -> list[TopicSwitch]:
    """The switches that lead there from a topic that is former; none where none of them does."""
    into: Mapping[str, TopicSwitch] = {switch.topic: switch for switch in generations.switches}
    found: list[TopicSwitch] = []
    while topic not in former and topic in into:
        found.insert(0, into[topic])
        topic = into[topic].former
    return found if topic in former else []


async def _rest_of(log: Log, switch: TopicSwitch, begin: AppliedOffsets) -> AppliedOffsets:
    """The end of a former topic, where something of it is left to be read."""
    parts = {TopicPartition(switch.former, each): at for each, at in switch.former_ends.items()}
    if all(part in begin and begin[part].next_offset >= at for part, at in parts.items()):
        return {}
    try:
        topic_id = await log.topic_id(switch.former)
    except LogRejected:
        raise PositionLost(
            "the topic was dropped before the query reached its end",
            hint="start the query again with another checkpoint",
            topic=switch.topic,
            former=switch.former,
        ) from None
    return {part: AppliedOffset(topic_id, at) for part, at in parts.items()}
