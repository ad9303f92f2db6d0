"""The history of every topic's table schema, in `__headwater_schemas`: written once, read by id."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from core_log.batch import Batch
from core_log.changes import Positions
from core_log.errors import ConfigError, DecodeError
from core_log.log import Log, TopicPartition
from core_log.rows.schema_text import schema_from_json, schema_to_json
from core_log.rows.settings import WireSettings
from core_log.table_schema import TableSchema
from pipelines.journal.decided import filled_partitions, read_decided
from pipelines.journal.generations import load_generations
from pipelines.journal.internal_topics import SCHEMAS, home_of
from pipelines.journal.small_batches import small_batch

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One schema of a topic, and since when it holds."""

    pipeline: str
    topic: str
    id: int
    schema: TableSchema
    wire: WireSettings
    positions: Positions
    """Where in the source's history the first change of this form stands: what the header
    `headwater.at` of its record says. Empty in logs of before that was kept."""
    recorded_ms: int


def schemas_home(topic: str) -> TopicPartition:
    return home_of(SCHEMAS, topic)


def encode_schema(stored: StoredSchema) -> Batch:
    value = {
        "version": FORMAT_VERSION,
        "pipeline": stored.pipeline,
        "positions": dict(stored.positions),
        "schema": schema_to_json(stored.schema, stored.wire),
    }
    key = orjson.dumps([stored.topic, stored.id])
    return small_batch([(key, orjson.dumps(value))], now_ms=stored.recorded_ms)


async def read_schemas(log: Log, home: TopicPartition) -> AsyncIterator[StoredSchema]:
    """Everything one partition of `__headwater_schemas` holds, in the order of its writing, without
    what has been taken back since."""
    found: dict[bytes, tuple[bytes, int]] = {}
    async for columns in read_decided(log, home):
        for time_ms, key, value in zip(
            columns.timestamps_ms.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            strict=True,
        ):
            found.pop(key, None)
            if value is not None:
                found[key] = value, time_ms
    for key, (value, time_ms) in found.items():
        yield _stored(key, value, time_ms)


async def topics_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The topics that a pipeline's changes go to, each with its newest schema; of a table that has
    had several the present one."""
    newest = await every_topic_of(log, pipeline)
    hidden = (await load_generations(log, pipeline, newest)).hidden
    return {topic: stored for topic, stored in newest.items() if topic not in hidden}


async def every_topic_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The same with those that another one has taken the place of."""
    newest: dict[str, StoredSchema] = {}
    for home in await filled_partitions(log, SCHEMAS):
        async for stored in read_schemas(log, home):
            if stored.pipeline == pipeline:
                newest[stored.topic] = stored
    return newest


async def newest_schema(log: Log, topic: str) -> TableSchema | None:
    """None of a topic that nothing was ever written to."""
    found = None
    async for stored in read_schemas(log, schemas_home(topic)):
        if stored.topic == topic:
            found = stored.schema
    return found


class SchemaReader:
    """Finds schemas by (topic, id), reading the log again only for an id it has not seen."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: dict[tuple[str, int], StoredSchema] = {}

    async def find(self, topic: str, schema_id: int) -> StoredSchema:
        if (topic, schema_id) not in self._known:
            async for stored in read_schemas(self._log, schemas_home(topic)):
                self._known[stored.topic, stored.id] = stored
        if (topic, schema_id) not in self._known:
            raise DecodeError(
                "a record names a schema that the log does not hold",
                hint="headwater schema history PIPELINE/TABLE shows those that are there",
                topic=topic,
                schema=schema_id,
            )
        return self._known[topic, schema_id]


class SchemaBook:
    """The writing side: gives every schema of a topic its number.

    A new schema counts from the moment it is handed out; if its transaction then aborts, this book
    must be thrown away with the run that it belongs to.
    """

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._history: dict[str, list[StoredSchema]] = {}
        self._read: set[TopicPartition] = set()
        self._reading = asyncio.Lock()

    async def current(
        self,
        topic: str,
        schema: TableSchema,
        wire: WireSettings,
        *,
        positions: Callable[[], Positions],
        now_ms: int,
    ) -> tuple[StoredSchema, bool]:
        """The schema under its number, and whether that is new and has to be appended."""
        newest = await self.newest(topic)
        if newest is not None and newest.pipeline != self._pipeline:
            raise ConfigError(
                "another pipeline writes this topic",
                hint="give log.topic another form, or drop the other pipeline first",
                topic=topic,
                other=newest.pipeline,
            )
        if newest is not None and newest.schema == schema and newest.wire == wire:
            return newest, False
        stored = StoredSchema(
            pipeline=self._pipeline,
            topic=topic,
            id=1 if newest is None else newest.id + 1,
            schema=schema,
            wire=wire,
            positions=positions(),
            recorded_ms=now_ms,
        )
        self._history.setdefault(topic, []).append(stored)
        return stored, True

    async def has(self, topic: str) -> bool:
        """Whether anything was ever written to it."""
        return await self.newest(topic) is not None

    async def newest(self, topic: str) -> StoredSchema | None:
        """None for a topic that nothing was ever written to."""
        found = await self.history(topic)
        return found[-1] if found else None

    async def history(self, topic: str) -> Sequence[StoredSchema]:
        """In the order of their numbers."""
        home = schemas_home(topic)
        async with self._reading:  # the source asks beside the one that writes
            if home not in self._read:
                async for stored in read_schemas(self._log, home):
                    self._history.setdefault(stored.topic, []).append(stored)
                self._read.add(home)
        return self._history.get(topic, ())


def _stored(key: bytes, value: bytes, time_ms: int) -> StoredSchema:
    topic, schema_id = orjson.loads(key)
    said = orjson.loads(value)
    if said["version"] > FORMAT_VERSION:
        raise DecodeError(
            "a schema was written by a newer Headwater",
            hint="upgrade Headwater here",
            topic=topic,
            schema=schema_id,
        )
    schema, wire = schema_from_json(said["schema"])
    return StoredSchema(
        said["pipeline"], topic, schema_id, schema, wire, said["positions"], time_ms
    )
