"""Topics that have followed one another, for queries that name one of them and mean the table."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from headwater.core_log.foundation.errors import LogRejected, PositionLost
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.generations import Generations, TopicSwitch, load_generations
from headwater.pipelines.journal.schemas import every_topic_of
from headwater.pipelines.spark_source.extent import stored_schemas
from headwater.pipelines.spark_source.options import ReadOptions
from headwater.sinks.sink import AppliedOffset, AppliedOffsets


async def generations_of(log: Log, topic: str) -> Generations:
    """Of the pipeline that writes it. Raises ConfigError where none does."""
    pipeline = (await stored_schemas(log, topic))[0].pipeline
    return await load_generations(log, pipeline, await every_topic_of(log, pipeline))


async def in_present(log: Log, options: ReadOptions) -> ReadOptions:
    """Typed columns are those of a table: they are read from where its changes go now, which holds
    all that came before. What is read raw is the very topic that was named."""
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
    held, reached = {each.topic for each in first}, {each.topic for each in last}
    for topic in reached if held - reached else ():
        for switch in _steps(await generations_of(log, topic), topic, held):
            end |= await _rest_of(log, switch, begin)
            topic_id = await log.topic_id(switch.topic)
            for number, at in switch.ends.items():
                part = TopicPartition(switch.topic, number)
                begin.setdefault(part, AppliedOffset(topic_id, at))
    return {part: begin[part] for part in end if part in begin}, end


def _steps(generations: Generations, topic: str, held: Collection[str]) -> list[TopicSwitch]:
    """The switches that lead there from a topic that is held; none where none of them does."""
    into: Mapping[str, TopicSwitch] = {switch.topic: switch for switch in generations.switches}
    found: list[TopicSwitch] = []
    while topic not in held and topic in into:
        found.insert(0, into[topic])
        topic = into[topic].former
    return found if topic in held else []


async def _rest_of(log: Log, switch: TopicSwitch, begin: AppliedOffsets) -> AppliedOffsets:
    """The end of a former topic, where something of it is left to be read."""
    parts = {TopicPartition(switch.former, each): at for each, at in switch.former_ends.items()}
    if all(part in begin and begin[part].next_offset >= at for part, at in parts.items()):
        return {}
    try:
        topic_id = await log.topic_id(switch.former)
    except LogRejected:
        raise PositionLost(
            "the topic in which the query stands was dropped before its end",
            hint="begin the query anew, with another checkpoint",
            topic=switch.topic,
            former=switch.former,
        ) from None
    return {part: AppliedOffset(topic_id, at) for part, at in parts.items()}
