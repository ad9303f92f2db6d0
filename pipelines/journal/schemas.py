"""The history of every topic's table schema, in `__headwater_schemas`: written once, read by id."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from headwater.core_log.foundation.errors import ConfigError, DecodeError, LogRejected, check_format
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.column_history import ColumnHistory, View
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.rows.schema_text import schema_from_json, schema_to_json, type_text
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.generations import load_generations
from headwater.pipelines.journal.internal_topics import (
    SCHEMAS,
    filled_partitions,
    home_of,
    read_decided,
)

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
        yield _read_stored(key, value, time_ms)


async def topics_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The topics that a pipeline's changes go to, each with its newest schema; of a table that has
    had several the present one."""
    newest = await every_topic_of(log, pipeline)
    hidden = (await load_generations(log, pipeline, newest)).hidden
    return {topic: stored for topic, stored in newest.items() if topic not in hidden}


async def every_topic_of(log: Log, pipeline: str) -> Mapping[str, StoredSchema]:
    """The same with those that another one has taken the place of."""
    return {stored.topic: stored for stored in await _schemas_of(log, pipeline)}


async def all_schemas_of(log: Log, pipeline: str) -> Sequence[StoredSchema]:
    """Those of before as well, of each topic the oldest first; none where nothing has ever run."""
    try:
        return await _schemas_of(log, pipeline)
    except LogRejected:
        return []


async def _schemas_of(log: Log, pipeline: str) -> list[StoredSchema]:
    return [
        stored
        for home in await filled_partitions(log, SCHEMAS)
        async for stored in read_schemas(log, home)
        if stored.pipeline == pipeline
    ]


async def newest_schema(log: Log, topic: str) -> TableSchema | None:
    """None of a topic that nothing was ever written to."""
    found = None
    async for stored in read_schemas(log, schemas_home(topic)):
        if stored.topic == topic:
            found = stored.schema
    return found


class SchemaReader:
    """Finds schemas by (topic, id), reading the log again only for an id it has not seen."""

    def __init__(
        self, log: Log, *, names: Collection[str] = (), newest: Mapping[str, int] | None = None
    ) -> None:
        """`names`: what columns are called, where they have ever been called so. `newest`: the
        last schema of a topic that counts, where later ones do not."""
        self._log, self._wanted, self._newest = log, names, newest or {}
        self._known: dict[str, dict[int, StoredSchema]] = {}
        self._histories: dict[str, ColumnHistory] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def find(self, topic: str, schema_id: int) -> StoredSchema:
        if schema_id not in self._known.get(topic, {}):
            await self._read(schemas_home(topic))
        if schema_id not in self._known.get(topic, {}):
            raise DecodeError(
                "a record names a schema that the log does not have",
                hint="headwater schema history PIPELINE/TABLE shows the existing ones",
                topic=topic,
                schema=schema_id,
            )
        return self._known[topic][schema_id]

    async def look(self, topics: Iterable[str]) -> None:
        """Learns of every schema that these topics have by now."""
        homes = sorted({schemas_home(topic) for topic in topics})
        ends = {each: bound.stable for each, bound in (await self._log.bounds(homes)).items()}
        for home, end in ends.items():
            if self._ends.get(home) != end:
                await self._read(home)
                self._ends[home] = end

    def view(self, topic: str, schema_id: int) -> View:
        """Returns how records under an earlier schema look under the newest one."""
        places = sorted(self._known[topic])
        last = self._newest.get(topic, places[-1])
        if schema_id > last:
            schema = self._known[topic][schema_id].schema
            return View(schema, tuple(range(len(schema.columns))))
        if topic not in self._histories:
            schemas = [self._known[topic][each].schema for each in places if each <= last]
            self._histories[topic] = ColumnHistory(schemas, names=self._wanted)
        return self._histories[topic].view(places.index(schema_id))

    async def _read(self, home: TopicPartition) -> None:
        found: dict[str, dict[int, StoredSchema]] = {}
        async for stored in read_schemas(self._log, home):
            known = self._known.get(stored.topic, {}).get(stored.id)
            # A reader that goes on compares with the very object that it had before.
            found.setdefault(stored.topic, {})[stored.id] = known if known == stored else stored
        for topic in found:
            self._histories.pop(topic, None)
        self._known |= found


class SchemaStore:
    """The writing side: gives every schema of a topic its number.

    A new schema counts from the moment it is handed out; if its transaction then aborts, this book
    must be thrown away with the run that it belongs to.
    """

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._history: dict[str, list[StoredSchema]] = {}
        self._read: set[TopicPartition] = set()
        self._has_read_all = False
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
                hint="change the template log.topic, or drop the other pipeline first",
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
        await self._learn(schemas_home(topic))
        return self._history.get(topic, ())

    async def newest_of_topics(self) -> Sequence[TableSchema]:
        """The last schema of every topic of the pipeline."""
        if not self._has_read_all:
            for home in await filled_partitions(self._log, SCHEMAS):
                await self._learn(home)
            self._has_read_all = True
        newest = [found[-1] for found in self._history.values()]
        return [each.schema for each in newest if each.pipeline == self._pipeline]

    async def _learn(self, home: TopicPartition) -> None:
        async with self._reading:  # the source asks beside the one that writes
            if home not in self._read:
                async for stored in read_schemas(self._log, home):
                    self._history.setdefault(stored.topic, []).append(stored)
                self._read.add(home)


def _read_stored(key: bytes, value: bytes, time_ms: int) -> StoredSchema:
    topic, schema_id = orjson.loads(key)
    content = orjson.loads(value)
    check_format(
        content["version"], FORMAT_VERSION, "a schema was written", topic=topic, schema=schema_id
    )
    schema, wire = schema_from_json(content["schema"])
    return StoredSchema(
        content["pipeline"], topic, schema_id, schema, wire, content["positions"], time_ms
    )


async def schemas_of_topic(log: Log, pipeline: str, topic: str) -> list[StoredSchema]:
    """The oldest first."""
    found = [
        stored
        async for stored in read_schemas(log, schemas_home(topic))
        if stored.topic == topic and stored.pipeline == pipeline
    ]
    return sorted(found, key=lambda stored: stored.id)


def differences(before: StoredSchema, after: StoredSchema) -> list[dict[str, str]]:
    old = {column.name: column for column in before.schema.columns}
    new = {column.name: column for column in after.schema.columns}
    found = [
        _change("dropped", name, before=column_text(old[name])) for name in old if name not in new
    ]
    found += [
        _change("added", name, after=column_text(new[name])) for name in new if name not in old
    ]
    found += [
        _change("altered", name, before=column_text(old[name]), after=column_text(new[name]))
        for name in old
        if name in new and old[name] != new[name]
    ]
    keys = [", ".join(each.schema.key) or "none" for each in (before, after)]
    if keys[0] != keys[1]:
        found.append(_change("key", "", before=keys[0], after=keys[1]))
    if before.wire != after.wire:
        pairs = zip(before.wire, after.wire, strict=True)
        found += [
            _change("format", name, before=str(was), after=str(now))
            for (name, was), (_, now) in pairs
            if was != now
        ]
    if not found and list(old) != list(new):
        found.append(_change("order", "", before=", ".join(old), after=", ".join(new)))
    return found


def _change(what: str, column: str, *, before: str = "", after: str = "") -> dict[str, str]:
    return {"what": what, "column": column, "before": before, "after": after}


def column_text(column: Column) -> str:
    semantic = f" ({column.semantic})" if column.semantic else ""
    labels = "".join(f" {name}={value}" for name, value in sorted(column.parameters.items()))
    return f"{type_text(column.type)}{'' if column.is_nullable else ' not null'}{semantic}{labels}"
