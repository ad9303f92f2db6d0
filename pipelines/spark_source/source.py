"""`spark.read.format("headwater")` and `spark.readStream`: topics of the log as tables."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.pipelines.spark_source.options import ReadOptions, endless, read_options

if TYPE_CHECKING:
    import pyarrow as pa

from collections.abc import AsyncGenerator

import pyarrow as pa

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Log
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_lists
from headwater.pipelines.spark_source.extent import open_log
from headwater.sinks.spark.splits import Split

BATCH_BYTES_MAX = 16 << 20
"""Records of one partition that become one batch for Spark, about."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)


def raw_batches(options: ReadOptions, split: Split) -> Iterator[pa.RecordBatch]:
    """Connects when the first is asked for."""
    batches = _batches(options, split)
    with asyncio.Runner() as runner:
        # `runner.run` would set a signal for each, and for that make a text of what is found.
        loop = runner.get_loop()
        try:
            while (batch := loop.run_until_complete(_next(batches))) is not None:
                yield batch
        finally:
            loop.run_until_complete(batches.aclose())


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _batches(options: ReadOptions, split: Split) -> AsyncGenerator[pa.RecordBatch, None]:
    limit, offset = FetchLimit(bytes_max=options.fetch_bytes), split.start
    async with open_log(options) as log:
        await _check_same_topic(log, split)
        while offset < split.end:
            wanted = {split.partition: offset}
            fetched = await log.fetch(wanted, limit=limit, isolation=options.isolation)
            if not fetched:
                # Compaction can have removed all that was left before an end that is decided.
                offset = await _beyond(log, split, offset, options.isolation)
            for part in fetched:
                for batch in _decode(part, split, offset):
                    yield batch
                offset = part.next_offset


async def _check_same_topic(log: KafkaLog, split: Split) -> None:
    if await log.topic_id(split.partition.topic) != split.topic_id:
        raise PositionLost(
            "the topic was deleted and recreated while it was read",
            hint="start the query again",
            topic=split.partition.topic,
        )


async def _beyond(log: Log, split: Split, offset: int, isolation: Isolation) -> int:
    bounds = (await log.bounds([split.partition]))[split.partition]
    reached = bounds.stable if isolation is Isolation.COMMITTED else bounds.end
    return split.end if reached >= split.end else offset


def _decode(fetched: Fetched, split: Split, offset: int) -> Iterator[pa.RecordBatch]:
    for columns in arrow_codec.decode_parts(
        fetched.data,
        from_offset=offset,
        bytes_max=BATCH_BYTES_MAX,
        partition=split.partition,
    ):
        count = int(columns.offsets.searchsorted(split.end))
        if not count:
            return
        yield pa.RecordBatch.from_arrays(
            [
                columns.keys[:count],
                columns.values[:count],
                pa.repeat(pa.scalar(split.partition.topic), count),
                pa.repeat(pa.scalar(split.partition.partition, pa.int32()), count),
                pa.array(columns.offsets[:count]),
                pa.array(columns.timestamps_ms[:count] * 1_000).view(ARROW.field("timestamp").type),
                header_lists(columns.headers[:count]).cast(HEADERS),
            ],
            schema=ARROW,
        )


class HeadwaterSource(DataSource):
    """Made anew by Spark for every step, each in a process of its own: it keeps nothing but its
    options. Heavy modules are imported where they are used, since Spark loads this module in every
    session of an environment that has it."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        from headwater.pipelines.spark_source import read_plan

        return asyncio.run(read_plan.columns(read_options(self.options)))

    def reader(self, schema: StructType) -> "HeadwaterReader":
        return HeadwaterReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "HeadwaterStreamReader":  # noqa: N802
        return HeadwaterStreamReader(endless(read_options(self.options)), schema)


class HeadwaterReader(DataSourceReader):
    """A batch: from where it begins to where it ends, fixed when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        from headwater.pipelines.spark_source import read_plan

        parts = asyncio.run(read_plan.batch(self._options))
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        return _read(self._options, self._schema, partition)


class HeadwaterStreamReader(DataSourceStreamReader):
    """Spark keeps the offsets in its checkpoint, with the ids of the topics that they are of."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        from headwater.pipelines.spark_source import read_plan

        return asyncio.run(read_plan.first_offsets(self._options))

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        from headwater.pipelines.spark_source import read_plan

        return asyncio.run(read_plan.newest_offsets(self._options))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from headwater.pipelines.spark_source import read_plan

        parts = asyncio.run(read_plan.plan_between(self._options, start, end))
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept in the log about who has read it."""

    def stop(self) -> None:
        """Nothing is held open."""


def _read(
    options: ReadOptions, schema: StructType, partition: InputPartition | None
) -> "Iterator[pa.RecordBatch]":
    """On an executor. Spark asks for no partition at all where there is nothing to read."""
    from headwater.pipelines.spark_source.read_plan import check_was_whole

    if partition is None:
        return
    if options.columns == "raw":
        yield from raw_batches(options, partition.value.split)
    else:
        from headwater.pipelines.spark_source.typed import typed_batches

        yield from typed_batches(options, schema, partition.value.split)
    asyncio.run(check_was_whole(options, partition.value))
