"""The log remembers of a row that it was read beside the stream."""

import numpy as np
import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.loops.ingest.encoder import Encoder
from tests.memory_log import MemoryLog
from tests.pipelines.pipeline_in_memory import Untouched, World

SCHEMA = TableSchema(
    TableId("public", "orders"), (Column("id", pa.int64(), is_nullable=False),), ("id",)
)
PLACE = TopicPartition("shop.public.orders", 0)
NOW_MS = 1_700_000_000_000


def changes(operation: Operation, *, snapshot: str, rows: int) -> TableChanges:
    ids = pa.array(range(rows), pa.int64())
    return TableChanges(
        SCHEMA,
        pa.RecordBatch.from_arrays([ids], schema=SCHEMA.arrow),
        pa.array(np.full(rows, operation, np.uint8)),
        {"connector": "test", **source_times(1), "snapshot": snapshot},
        commits="0/1",
    )


@pytest.mark.parametrize("rows", [3, 700])
@pytest.mark.parametrize("value", ["debezium-json", "flat-json"])
@pytest.mark.parametrize(
    ("operation", "snapshot", "found"),
    [
        (Operation.READ, "true", Operation.READ),
        (Operation.READ, "incremental", Operation.REREAD),
        (Operation.DELETE, "incremental", Operation.DELETE),
        (Operation.UPDATE, "false", Operation.UPDATE),
    ],
)
async def test_a_row_read_beside_the_stream_is_told_from_one_of_the_first_reading(
    operation: Operation, snapshot: str, found: Operation, value: str, rows: int
) -> None:
    log = MemoryLog()
    before = changes(Operation.INSERT, snapshot="false", rows=rows)

    await append(log, value, before, changes(operation, snapshot=snapshot, rows=rows))

    assert await operations_in(log) == [Operation.INSERT] * rows + [found] * rows


async def append(log: MemoryLog, value: str, *given: TableChanges) -> None:
    for topic in internal_topics(history_ms=1):
        await log.ensure_topic(topic)
    encoder = Encoder(
        log,
        topics=World([]).rules,
        wire=WireSettings.model_validate({"value": value}),
        before_log=Untouched(),
        compression=Compression.NONE,
    )
    async with (await log.writer("test")).transaction() as transaction:
        for each in given:
            async for together in encoder.encode(each, now_ms=NOW_MS):
                for partition, batch, _ in together:
                    await transaction.append(partition, batch)


async def operations_in(log: MemoryLog) -> list[int]:
    limit = FetchLimit(bytes_max=1 << 20)
    fetched = await log.fetch({PLACE: 0}, limit=limit, isolation=Isolation.COMMITTED)
    decoder = RecordDecoder(log)
    return [
        operation
        for each in fetched
        for piece in await decoder.decode(
            each, from_offset=0, end=each.next_offset, skipped=frozenset()
        )
        for operation in piece.changes.operations.to_pylist()
    ]
