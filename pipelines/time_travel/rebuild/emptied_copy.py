"""A copy of a table of which its source found no row when it read it again as a whole."""

from collections.abc import AsyncIterator, Mapping

import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import AppliedOffset, Sink, Slice


async def begin_empty(
    shadow: Sink, schema: TableSchema, log: Log, beginnings: Mapping[TopicPartition, int]
) -> None:
    """Nothing is in the log from there on that would make the copy: a truncate in the place of all
    that was before does. Nothing is done for partitions that the copy has come to."""
    held = await shadow.committed_offsets(sorted({part.topic for part in beginnings}))
    if held is None or not beginnings.keys() - held.keys():
        return
    left = {part: offset for part, offset in beginnings.items() if part not in held}
    is_new = not held.keys() & beginnings.keys()
    ids = {part.topic: await log.topic_id(part.topic) for part in left}

    async def read(part: Slice) -> AsyncIterator[TableChanges]:
        if is_new:
            yield _truncate(schema, left)

    await shadow.apply(
        Slice(
            log=log,
            start={part: AppliedOffset(ids[part.topic], 0) for part in left},
            end={part: AppliedOffset(ids[part.topic], offset) for part, offset in left.items()},
            cut=None,
            read=read,
        )
    )


def _truncate(schema: TableSchema, left: Mapping[TopicPartition, int]) -> TableChanges:
    markers = {part: max(offset - 1, 0) for part, offset in left.items()}
    [place, *_] = markers
    columns = [pa.nulls(1, field.type) for field in schema.arrow]
    return TableChanges(
        schema,
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        pa.array([Operation.TRUNCATE], pa.uint8()),
        source={"ts_us": 0},
        log_partition=place,
        log_offsets=pa.array([markers[place]], pa.int64()),
        markers=markers,
    )
