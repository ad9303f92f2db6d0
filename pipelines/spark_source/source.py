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


class HeadwaterSource(DataSource):
    """Made anew by Spark for every step, each in a process of its own: it keeps nothing but its
    options. What is heavy is imported where it is used, since Spark loads this module in every
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

        parts = asyncio.run(read_plan.between(self._options, start, end))
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
        from headwater.pipelines.spark_source.raw import raw_batches

        yield from raw_batches(options, partition.value.split)
    else:
        from headwater.pipelines.spark_source.typed import typed_batches

        yield from typed_batches(options, schema, partition.value.split)
    asyncio.run(check_was_whole(options, partition.value))
