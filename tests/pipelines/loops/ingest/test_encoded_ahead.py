"""Changes that are encoded before their turn go into the log as they would have gone then."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import ChangeBatch, Operation, TableChanges, source_times
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import seal
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.loops.ingest.encoder import (
    PIECE_ROWS_MAX,
    Encoder,
    PartitionBatch,
    split_batch,
)
from headwater.pipelines.loops.ingest.prefetch import prefetch
from tests.pipelines.pipeline_in_memory import World

ROWS, NOW_MS = 2_000, 1_700_000_000_000
SCHEMA = TableSchema(
    TableId("public", "t"),
    (Column("id", pa.int64(), is_nullable=False), Column("text", pa.string())),
    ("id",),
)
WIDER = replace(SCHEMA, columns=(*SCHEMA.columns, Column("more", pa.int64())))


def changes(first: int, schema: TableSchema = SCHEMA, *, rows: int = ROWS) -> TableChanges:
    """Large enough for a thread, unless it is to be small."""
    ids = pa.array(range(first, first + rows), pa.int64())
    texts = pa.array([f"{each:0100}" for each in range(rows)], pa.string())
    columns = [ids, texts, ids]
    return TableChanges(
        schema,
        pa.RecordBatch.from_arrays(columns[: len(schema.columns)], schema=schema.arrow),
        pa.array([Operation.INSERT] * rows, pa.uint8()),
        {"connector": "test", **source_times(1)},
        commits=str(first),
    )


def batch(*tables: TableChanges) -> ChangeBatch:
    return ChangeBatch(tables, {})


async def portions(encoder: Encoder, what: TableChanges) -> list[PartitionBatch]:
    found = encoder.encode(what, now_ms=NOW_MS)
    return [each async for together in found for each in together]


def keys(found: Sequence[PartitionBatch]) -> list[bytes]:
    return [
        key for portion in found if portion.is_data for key in decoded(portion).keys.to_pylist()
    ]


def decoded(portion: PartitionBatch) -> RecordColumns:
    seal(portion.batch.data)
    return arrow_codec.decode(bytes(portion.batch.data))


def keys_of(what: TableChanges) -> list[bytes]:
    return [b'{"id":%d}' % each for each in what.rows.column("id").to_pylist()]


async def test_batches_encoded_ahead_equal_those_encoded_in_turn() -> None:
    encoder = World([]).encoder()
    first, second, third = (changes(number) for number in (0, 5_000, 10_000))
    await portions(encoder, first)

    encoder.start_batch(batch(second, third), now_ms=NOW_MS)
    found = [await portions(encoder, each) for each in (second, third)]

    plain = World([]).encoder()
    expected = [await portions(plain, each) for each in (first, second, third)][1:]
    assert [[each.batch.data for each in some] for some in found] == [
        [each.batch.data for each in some] for some in expected
    ]
    assert keys(found[1]) == keys_of(third)


@pytest.mark.parametrize("rows", [1, ROWS])
async def test_batches_encoded_ahead_are_encoded_only_once(rows: int) -> None:
    encoder = World([]).encoder()
    first, none, second = changes(0), changes(0, rows=0), changes(5_000, rows=rows)
    await portions(encoder, first)

    encoder.start_batch(batch(none, second), now_ms=NOW_MS + 7)
    found = await portions(encoder, second)

    assert {each.batch.max_timestamp for each in found} == {NOW_MS + 7}


@pytest.mark.parametrize("rows", [1, 4_001, 8_001, 12_001, 100_000])
def test_a_batch_is_divided_into_pieces_of_about_one_size(rows: int) -> None:
    sizes = [len(each) for each in split_batch(changes(0, rows=rows))]

    assert sum(sizes) == rows
    assert max(sizes) <= PIECE_ROWS_MAX
    assert max(sizes) - min(sizes) < len(sizes)


async def test_small_changes_between_large_ones_keep_their_places() -> None:
    encoder = World([]).encoder()
    parts = [changes(0), changes(5_000, rows=1), changes(10_000), changes(15_000, rows=1)]
    await portions(encoder, changes(20_000))

    encoder.start_batch(batch(*parts), now_ms=NOW_MS)
    found = [keys(await portions(encoder, each)) for each in parts]

    assert found == [keys_of(each) for each in parts]


@pytest.mark.slow
async def test_a_table_that_took_another_form_meanwhile_is_written_under_the_newest() -> None:
    """The number of its schema is not that of the day on which it was begun."""
    encoder = World([]).encoder()
    first, wider, last = changes(0), changes(5_000, WIDER), changes(10_000)
    before = decoded((await portions(encoder, first))[-1])

    encoder.start_batch(batch(wider, last), now_ms=NOW_MS)
    found = [await portions(encoder, each) for each in (wider, last)]

    heads = [decoded(some[-1]).headers[0] for some in found]
    assert len({before.headers[0].as_py(), *(each.as_py() for each in heads)}) == 3
    assert [keys(each) for each in found] == [keys_of(each) for each in (wider, last)]


async def test_rows_that_are_set_aside_are_told_with_their_own_batch() -> None:
    """Else they would be stored with a position that does not speak of them yet."""
    timestamps = TableSchema(
        TableId("public", "t"), (*SCHEMA.columns, Column("at", pa.timestamp("us", "UTC"))), ("id",)
    )
    good, bad = changes(0), changes(5_000)
    least = pa.array([-(2**63)] + [0] * (ROWS - 1)).view(pa.timestamp("us", "UTC"))
    with_timestamps = [
        replace(
            each,
            schema=timestamps,
            rows=pa.RecordBatch.from_arrays([*each.rows.columns, at], schema=timestamps.arrow),
        )
        for each, at in ((good, least.slice(1).take(pa.array([0] * ROWS))), (bad, least))
    ]
    encoder = World([]).encoder()
    await portions(encoder, with_timestamps[0])

    encoder.start_batch(batch(*with_timestamps), now_ms=NOW_MS)
    await portions(encoder, with_timestamps[0])
    with_the_good = list(encoder.rejects)
    await portions(encoder, with_timestamps[1])

    assert not with_the_good
    assert [each.content for each in encoder.rejects] == [b'{"id":"5000"}']


async def test_an_encoder_that_ends_early_leaves_nothing_running() -> None:
    encoder = World([]).encoder()
    await portions(encoder, changes(0))
    closed = []

    async def source() -> AsyncGenerator[ChangeBatch, None]:
        try:
            for number in range(100):
                yield batch(changes(number))
        finally:
            closed.append(True)

    async with aclosing(encoder), prefetch(source(), encoder, World([]).clock) as batches:
        last = await batches.next()

    assert closed and last is not None
    assert asyncio.all_tasks() == {asyncio.current_task()}
    [changed] = last.tables
    assert keys(await portions(encoder, changed)) == keys_of(changed)


async def test_a_schema_says_where_in_the_source_its_first_record_stands() -> None:
    encoder = World([]).encoder()

    found = [await portions(encoder, each) for each in (changes(7), changes(8), changes(9, WIDER))]

    stored = [decoded(each) for some in found for each in some if not each.is_data]
    said = [json.loads(columns.values[0].as_py())["positions"] for columns in stored]
    assert said == [{"headwater.at": "7"}, {"headwater.at": "9"}]
