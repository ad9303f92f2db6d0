"""Every schema of a topic has a number for ever, and a topic has one pipeline."""

import asyncio
from dataclasses import replace

import pytest

from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.model.table_schema import DroppedColumn, TableSchema
from headwater.core_log.rows.schema_text import schema_from_json, schema_to_json
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.journal.schemas import (
    SchemaReader,
    SchemaStore,
    encode_schema,
    schemas_home,
    topics_of,
)
from tests.memory_log import MemoryLog
from tests.pipelines.pipeline_in_memory import schema_of

TOPIC = "shop.public.orders"


async def a_log() -> MemoryLog:
    log = MemoryLog()
    for topic in internal_topics(history_ms=1_000):
        await log.ensure_topic(topic)
    return log


async def record(
    log: MemoryLog, pipeline: str, schema: TableSchema, wire: WireSettings | None = None
) -> int:
    """As a new run of the pipeline would."""
    book, wire = SchemaStore(log, pipeline), wire or WireSettings()
    stored, is_new = await book.current(TOPIC, schema, wire, positions=dict, now_ms=1)
    if is_new:
        await log.append(schemas_home(TOPIC), encode_schema(stored))
    return stored.id


def test_a_schema_keeps_its_number_over_runs_and_a_changed_one_gets_the_next() -> None:
    async def story() -> list[int]:
        log = await a_log()
        schema = schema_of("orders")
        narrow = TableSchema(schema.table, schema.columns[:1], schema.key)
        return [await record(log, "shop", each) for each in (schema, schema, narrow, schema)]

    assert asyncio.run(story()) == [1, 1, 2, 3]


def test_recorded_schemas_are_read_back() -> None:
    async def story() -> TableSchema:
        log = await a_log()
        await record(log, "shop", schema_of("orders"))
        assert set(await topics_of(log, "shop")) == {TOPIC}
        assert not await topics_of(log, "other")
        return (await SchemaReader(log).find(TOPIC, 1)).schema

    assert asyncio.run(story()) == schema_of("orders")


def test_a_reader_looks_again_for_a_number_it_does_not_know() -> None:
    async def story() -> None:
        log = await a_log()
        reader = SchemaReader(log)
        with pytest.raises(DecodeError, match="does not have"):
            await reader.find(TOPIC, 1)
        await record(log, "shop", schema_of("orders"))
        await reader.find(TOPIC, 1)

    asyncio.run(story())


def test_a_second_pipeline_on_a_topic_is_refused() -> None:
    async def story() -> None:
        log = await a_log()
        await record(log, "shop", schema_of("orders"))
        await record(log, "other", schema_of("orders"))

    with pytest.raises(ConfigError, match="another pipeline"):
        asyncio.run(story())


def test_ids_of_columns_are_read_back_and_are_unknown_in_schemas_of_before_there_were_any() -> None:
    schema = schema_of("orders")
    columns = tuple(replace(each, id=at) for at, each in enumerate(schema.columns, 1))
    known = replace(schema, columns=columns, id=7, dropped=(DroppedColumn("ssn", 9, "tax"),))
    document = schema_to_json(known, WireSettings())
    of_before = schema_to_json(replace(schema, dropped=(DroppedColumn("ssn"),)), WireSettings())

    read, read_before = schema_from_json(document)[0], schema_from_json(of_before)[0]

    assert read == known
    assert of_before["dropped"] == ["ssn"] and not any(
        "id" in each for each in of_before["columns"]
    )
    assert read_before == known.without_ids


def test_ids_that_are_learnt_cost_one_schema() -> None:
    async def story() -> list[int]:
        log, schema = await a_log(), schema_of("orders")
        known = replace(schema, columns=tuple(replace(each, id=1) for each in schema.columns))
        return [await record(log, "shop", each) for each in (schema, known, known)]

    assert asyncio.run(story()) == [1, 2, 2]
