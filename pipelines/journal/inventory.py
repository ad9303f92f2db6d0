"""The traces of pipelines in a log: their names, tables, topics and groups, and their removal."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.dead_letters.dead_letter import (
    dead_letter_home,
    dead_letter_topic,
    encode_removals,
    read_dead_letters,
)
from headwater.pipelines.journal.commits import (
    commits_home,
    encode_positions,
    load_positions,
    positions_home,
)
from headwater.pipelines.journal.control import (
    COMMITS_FROM,
    DROPPED,
    Signal,
    begin_drop,
    end_drop,
    forget_control,
    read_dropping,
    write_control,
)
from headwater.pipelines.journal.generations import (
    FILLING,
    GENERATION,
    Generations,
    load_generations,
)
from headwater.pipelines.journal.internal_topics import (
    CONTROL,
    EVENT_KINDS,
    POSITIONS,
    SCHEMAS,
    event_topic,
    filled_partitions,
    read_decided,
)
from headwater.pipelines.journal.replacements import give_up, part_of, replacements_of
from headwater.pipelines.journal.schemas import (
    StoredSchema,
    every_topic_of,
    read_schemas,
    schemas_home,
    topics_of,
)

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog


GROUP_PREFIX = "headwater."


@dataclass(frozen=True, slots=True)
class PipelineInventory:
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    """Each remembers for the log's own tools how far a sink has come."""

    @property
    def is_empty(self) -> bool:
        return not self.topics and not self.groups


async def pipelines_in(log: Log) -> frozenset[str]:
    """Returns every pipeline with a position, a schema or a signal in the log."""
    found: set[str] = set()
    for topic in (POSITIONS, CONTROL):
        found |= await _owners(log, topic)
    async for stored in _schemas(log):
        found.add(stored.pipeline)
    return frozenset(found)


async def schemas_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """Returns the newest schema of every topic of a pipeline; none if it has never run."""
    try:
        return await topics_of(log, pipeline)
    except LogRejected:
        return {}


async def every_schema_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """Returns the same with former generations of topics."""
    try:
        return await every_topic_of(log, pipeline)
    except LogRejected:
        return {}


async def tables_of(log: Log, pipeline: str) -> frozenset[str]:
    return frozenset(
        str(stored.schema.table) for stored in (await schemas_of(log, pipeline)).values()
    )


async def leavings_of(log: "KafkaLog", pipeline: str) -> PipelineInventory:
    existing = {topic.name for topic in await log.topics.all()}
    events = [event_topic(pipeline, kind).name for kind in EVENT_KINDS]
    wanted = [*await every_schema_of(log, pipeline), dead_letter_topic(pipeline).name, *events]
    prefix = f"{GROUP_PREFIX}{pipeline}."
    groups = [group.name for group in await log.groups.all() if group.name.startswith(prefix)]
    return PipelineInventory(tuple(topic for topic in wanted if topic in existing), tuple(groups))


async def _owners(log: Log, topic: str) -> set[str]:
    """Returns pipelines by the keys of a compacted topic, which begin with the pipeline's name."""
    kept: set[bytes] = set()
    try:
        homes = await filled_partitions(log, topic)
    except LogRejected:
        return set()  # the topic is not there, so no pipeline has ever run
    for home in homes:
        async for columns in read_decided(log, home):
            keys, values = columns.keys.to_pylist(), columns.values.to_pylist()
            for key, value in zip(keys, values, strict=True):
                (kept.discard if value is None else kept.add)(key)
    named = [orjson.loads(key) for key in kept]
    return {name for name, *rest in named if topic != CONTROL or rest[-1] != DROPPED}


async def _schemas(log: Log) -> AsyncIterator[StoredSchema]:
    try:
        homes = await filled_partitions(log, SCHEMAS)
    except LogRejected:
        return
    for home in homes:
        async for stored in read_schemas(log, home):
            yield stored


async def drop_from_log(
    log: "KafkaLog", pipeline: str, left: PipelineInventory, *, now_ms: int
) -> AsyncGenerator[str, None]:
    """Removes a pipeline's traces, and yields each; a repetition after a failure does the rest.

    The position goes first: without it no run continues over missing topics. The schemas go last,
    since they name the topics. No task begins meanwhile, nor after an interruption: rows that were
    deleted since would stay in the remaining topics.
    """
    await begin_drop(log, pipeline, now_ms=now_ms)
    writer = await log.writer(f"headwater.{pipeline}")  # fences one that began before
    positions = await load_positions(log, pipeline)
    if positions:
        async with writer.transaction() as transaction:
            gone = dict.fromkeys(positions)
            await transaction.append(
                positions_home(pipeline), encode_positions(pipeline, gone, now_ms=now_ms)
            )
        yield f"position of the source, {len(positions)} parts"
    if count := await forget_control(log, pipeline, now_ms=now_ms):
        yield f"signals, {count} of them"
    home = commits_home(pipeline)
    end = (await log.bounds([home]))[home].end
    mark = Signal(DROPPED, "", f"{DROPPED}-{end}", {COMMITS_FROM: str(end)})
    await write_control(log, pipeline, [mark], now_ms=now_ms)
    for group in left.groups:
        await log.groups.delete(group)
        yield f"group {group}"
    for topic in left.topics:
        await log.topics.delete(topic)
        yield f"topic {topic}"
    for topic in await every_schema_of(log, pipeline):
        if count := await _forget_schemas(log, pipeline, topic, now_ms=now_ms):
            yield f"schemas of {topic}, {count} of them"
    await end_drop(log, pipeline, await read_dropping(log, pipeline), now_ms=now_ms)


async def drop_table_from_log(
    log: "KafkaLog", pipeline: str, table: str, *, parts: Collection[str], now_ms: int
) -> AsyncGenerator[str, None]:
    """Removes one table's traces in the same order; the pipeline's next run reads it again. `parts`
    are the table's parts of the source's position."""
    await begin_drop(log, pipeline, table, now_ms=now_ms)
    every = await every_schema_of(log, pipeline)
    topics = [topic for topic, stored in every.items() if str(stored.schema.table) == table]
    writer = await log.writer(f"headwater.{pipeline}")  # fences one that runs all the same
    positions = await load_positions(log, pipeline)
    generations = Generations.of(positions)
    firsts = {generations.first(topic) for topic in topics}
    own = {*parts, *(f"{kind}{first}" for kind in (GENERATION, FILLING) for first in firsts)}
    own |= {part_of(stored.schema.table) for topic, stored in every.items() if topic in topics}
    gone = dict.fromkeys(sorted(own & positions.keys()))
    if gone:
        async with writer.transaction() as transaction:
            await transaction.append(
                positions_home(pipeline), encode_positions(pipeline, gone, now_ms=now_ms)
            )
        yield f"position of {table}, {len(gone)} parts"
    if count := await forget_control(log, pipeline, now_ms=now_ms, table=table):
        yield f"signals, {count} of them"
    if count := await _forget_dead_letters(log, pipeline, topics, table, now_ms=now_ms):
        yield f"dead letters, {count} of them"
    left = await leavings_of(log, pipeline)
    for group in left.groups:
        offsets = await log.committed_offsets(group)
        if mine := [each for each in offsets if each.topic in topics]:
            await log.groups.forget(group, mine)
    for topic in topics:
        if topic in left.topics:
            await log.topics.delete(topic)
            yield f"topic {topic}"
    for topic in topics:
        if count := await _forget_schemas(log, pipeline, topic, now_ms=now_ms):
            yield f"schemas of {topic}, {count} of them"
    await end_drop(log, pipeline, [table], now_ms=now_ms)


async def end_rereads(log: "KafkaLog", positions: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the ended parts of open re-reads, which a source that begins afresh does not end: up
    to here their topics are no state of it."""
    found = dict[str, str | None]()
    for stored in replacements_of(positions).values():
        ended = await give_up(log, stored)
        found[stored.part] = None if ended is None else ended.text()
    return found


async def _forget_dead_letters(
    log: "KafkaLog", pipeline: str, topics: Collection[str], table: str, *, now_ms: int
) -> int:
    try:
        stored = await read_dead_letters(log, pipeline)
    except LogRejected:
        return 0  # there is no topic of dead letters
    dead_letters = [each.dead_letter for each in stored]
    mine = [each for each in dead_letters if each.topic in topics or each.table == table]
    for batch in encode_removals(mine, now_ms=now_ms) if mine else ():
        await log.append(dead_letter_home(pipeline), batch)
    return len(mine)


async def drop_former(
    log: "KafkaLog", pipeline: str, *, with_unread: bool, now_ms: int
) -> AsyncGenerator[str, None]:
    """Removes former generations of topics, and yields each. The pipeline may be running: a sink at
    the end of a topic does not read it again."""
    every = await every_schema_of(log, pipeline)
    generations = await load_generations(log, pipeline, every)
    existing = {topic.name for topic in await log.topics.all()}
    if not with_unread:
        await _check_read(log, pipeline, generations, existing)
    for topic in sorted(generations.former):
        if topic in existing:
            await log.topics.delete(topic)
            yield f"topic {topic}"
        if count := await _forget_schemas(log, pipeline, topic, now_ms=now_ms):
            yield f"schemas of {topic}, {count} of them"


async def _check_read(
    log: "KafkaLog", pipeline: str, generations: Generations, existing: Collection[str]
) -> None:
    """Raises ConfigError where a sink has begun a topic and not come to its end."""
    for group in (await leavings_of(log, pipeline)).groups:
        offsets = await log.committed_offsets(group)
        for switch in generations.switches:
            theirs = {part.partition: at for part, at in offsets.items()
                      if part.topic == switch.former}  # fmt: skip
            is_behind = any(theirs.get(at, 0) < end for at, end in switch.former_ends.items())
            if theirs and is_behind and switch.former in existing:
                raise ConfigError(
                    "a sink has not finished a former topic",
                    hint="let it catch up, or drop with --unread and then rebuild its table",
                    sink=group.removeprefix(f"{GROUP_PREFIX}{pipeline}."),
                    topic=switch.former,
                )


async def _forget_schemas(log: "KafkaLog", pipeline: str, topic: str, *, now_ms: int) -> int:
    home: TopicPartition = schemas_home(topic)
    keys = [
        orjson.dumps([stored.topic, stored.id])
        async for stored in read_schemas(log, home)
        if stored.topic == topic and stored.pipeline == pipeline
    ]
    nothing = pa.nulls(len(keys), pa.binary())
    for batch in arrow_codec.encode(pa.array(keys, pa.binary()), nothing, timestamps_ms=now_ms):
        await log.append(home, batch)
    return len(keys)
