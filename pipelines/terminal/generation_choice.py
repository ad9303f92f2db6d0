"""Which topic somebody means who names a table or one of its topics: the newest generation."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.model.topic_generations import first_of, generation_name, number_of
from headwater.pipelines.terminal.control_writer import find_table, split_target

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.model.log import TopicPartition
    from headwater.pipelines.journal.generations import Generations


@dataclass(frozen=True, slots=True)
class ChosenGeneration:
    """A topic to read, and what there is to say of it."""

    topic: str
    remark: str = ""
    pipeline: str = ""
    """The pipeline that has written it; empty where it is followed nowhere."""


async def chosen_topic(log: "KafkaLog", target: str, *, generation: int | None) -> ChosenGeneration:
    """`target` is PIPELINE/TABLE or a topic; no topic has a slash in its name."""
    existing = {topic.name for topic in await log.topics.all()}
    asked, pipeline = target, ""
    if "/" in target:
        asked, pipeline = await _topic_of_table(log, target)
    siblings = _siblings(asked, existing)
    if generation is not None:
        topic = first_of(asked) if generation == 1 else generation_name(first_of(asked), generation)
        if topic not in existing:
            raise ConfigError(
                "the topic does not have this generation, or no longer",
                hint=f"there is {', '.join(siblings)}" if siblings else "headwater topics ls",
                topic=topic,
            )
        return ChosenGeneration(topic)
    if not pipeline and len(siblings) < 2:
        return ChosenGeneration(asked, pipeline=await _writer_of(log, asked, existing))
    pipeline = pipeline or await _writer_of(log, asked, existing)
    present = (await _generations(log, pipeline)).former.get(asked, asked)
    return ChosenGeneration(present, _remark(present, asked=asked, siblings=siblings), pipeline)


async def next_positions(
    log: "KafkaLog", pipeline: str, positions: Mapping["TopicPartition", int]
) -> Mapping["TopicPartition", int]:
    """Where a reader who has come to the end of a topic goes on in the next one, behind what was
    filled into that; nothing while there is none."""
    from headwater.core_log.model.log import TopicPartition

    [topic] = {each.topic for each in positions}
    existing = {each.name for each in await log.topics.all()}
    if not any(number_of(each) > number_of(topic) for each in _siblings(topic, existing)):
        return {}
    for switch in (await _generations(log, pipeline)).switches:
        if switch.former == topic:
            is_read = all(
                positions.get(TopicPartition(topic, number), end) >= end
                for number, end in switch.former_ends.items()
            )
            ends = switch.ends.items() if is_read else ()
            return {TopicPartition(switch.topic, number): end for number, end in ends}
    return {}


def _siblings(topic: str, existing: Collection[str]) -> list[str]:
    line = [each for each in existing if first_of(each) == first_of(topic)]
    return sorted(line, key=number_of)


def _remark(present: str, *, asked: str, siblings: Collection[str]) -> str:
    number = number_of(present)
    others = [str(number_of(each)) for each in siblings if each != present]
    if present != asked:
        answer = f"{asked} is a former generation: {present} is read"
    elif number > 1:
        answer = f"{present} is read, generation {number} of its table's topic"
    else:
        return ""
    return f"{answer}; --generation {' or '.join(others)} reads another" if others else answer


async def _topic_of_table(log: "KafkaLog", target: str) -> tuple[str, str]:
    from headwater.pipelines.journal.inventory import schemas_of

    pipeline, given = split_target(target)
    stored = await schemas_of(log, pipeline)
    if not stored:
        raise ConfigError(
            "the log has no rows of a pipeline of this name",
            hint="headwater topics ls shows the pipelines' topics",
            pipeline=pipeline,
        )
    topics = {str(each.schema.table): topic for topic, each in stored.items()}
    return topics[find_table(given, topics, pipeline=pipeline)], pipeline


async def _writer_of(log: "KafkaLog", topic: str, existing: Collection[str]) -> str:
    from headwater.pipelines.journal.internal_topics import SCHEMAS
    from headwater.pipelines.journal.schemas import read_schemas, schemas_home

    if SCHEMAS not in existing or topic.startswith("__"):
        return ""
    found = [each async for each in read_schemas(log, schemas_home(topic)) if each.topic == topic]
    return found[-1].pipeline if found else ""


async def _generations(log: "KafkaLog", pipeline: str) -> "Generations":
    from headwater.pipelines.journal.generations import NONE, Generations
    from headwater.pipelines.journal.positions import load_positions

    if not pipeline:
        return NONE
    try:
        return Generations.of(await load_positions(log, pipeline))
    except LogRejected:
        return NONE
