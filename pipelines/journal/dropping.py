"""Takes out of a log what a pipeline has left there, so that another of its name starts afresh."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from core_log import records
from core_log.log import TopicPartition
from pipelines.journal.commits import commits_home
from pipelines.journal.control import COMMITS_FROM, DROPPED, Wish, forget_control, write_control
from pipelines.journal.inventory import Leavings, every_schema_of
from pipelines.journal.positions import encode_positions, load_positions, positions_home
from pipelines.journal.schemas import read_schemas, schemas_home

if TYPE_CHECKING:
    from core_log.client import KafkaLog


async def drop_from_log(
    log: "KafkaLog", pipeline: str, left: Leavings, *, now_ms: int
) -> AsyncIterator[str]:
    """Says what is gone, as it goes. Repeating it after a failure does the rest.

    The position goes first: without it nothing can go on where topics are missing already. The
    schemas go last, since they are what the topics are found by.
    """
    writer = await log.writer(f"headwater.{pipeline}")  # fences one that runs all the same
    positions = await load_positions(log, pipeline)
    if positions:
        async with writer.transaction() as transaction:
            gone = dict.fromkeys(positions)
            for batch in encode_positions(pipeline, gone, now_ms=now_ms):
                await transaction.append(positions_home(pipeline), batch)
        yield f"position of the source, {len(positions)} parts"
    if count := await forget_control(log, pipeline, now_ms=now_ms):
        yield f"wishes, {count} of them"
    home = commits_home(pipeline)
    end = (await log.bounds([home]))[home].end
    mark = Wish(DROPPED, "", f"{DROPPED}-{end}", {COMMITS_FROM: str(end)})
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


async def _forget_schemas(log: "KafkaLog", pipeline: str, topic: str, *, now_ms: int) -> int:
    home: TopicPartition = schemas_home(topic)
    keys = [
        orjson.dumps([stored.topic, stored.id])
        async for stored in read_schemas(log, home)
        if stored.topic == topic and stored.pipeline == pipeline
    ]
    nothing = pa.nulls(len(keys), pa.binary())
    for batch in records.encode(pa.array(keys, pa.binary()), nothing, timestamps_ms=now_ms):
        await log.append(home, batch)
    return len(keys)
