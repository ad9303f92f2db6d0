"""Deleted rows from before a re-read of their table, for a copy that keeps deleted rows."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.loaded_parts import LoadedPart
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.time_travel.rebuild.replay import begin_empty, replay
from headwater.sinks.evolution import holds
from headwater.sinks.sink import AppliedOffsets, Sink


def keeps_deleted(part: LoadedPart, table: TableId) -> bool:
    """Returns whether the target keeps rows that the source has deleted."""
    if not hasattr(part.settings, "of"):
        return False
    chosen = part.settings.of(str(table))
    return bool(chosen.mode == "soft_delete" or chosen.deletes == "ignore")


async def fill_former(
    loaded: LoadedPipeline,
    part: LoadedPart,
    shadow: Sink,
    log: Log,
    schema: TableSchema,
    *,
    live: AppliedOffsets,
    beginnings: Mapping[TopicPartition, int],
    clock: Clock,
) -> None:
    """Fills a copy up to the last re-read, if the live table has not reached it: rows deleted
    before are not among those that are carried over."""
    if all(place in live and live[place].next_offset >= at for place, at in beginnings.items()):
        return
    held = await shadow.committed_offsets(sorted({place.topic for place in beginnings})) or {}
    if all(place in held and held[place].next_offset >= at for place, at in beginnings.items()):
        return

    async def fitted(changes: AsyncIterator[TableChanges]) -> AsyncIterator[TableChanges]:
        async for each in changes:
            yield fit(each, schema)

    start = dict.fromkeys(beginnings, 0)
    await begin_empty(shadow, schema, log, start)  # compaction may have left no records for it
    await replay(
        loaded, part, shadow, log, start=start, end=beginnings, clock=clock, through=fitted
    )


def fit(changes: TableChanges, newest: TableSchema) -> TableChanges:
    """Returns the rows in the present columns. Values that these types cannot hold become null,
    because they must not be converted silently."""
    rows, given = changes.rows, set(changes.rows.schema.names)
    columns = tuple(
        column if column.name in newest.key else replace(column, is_nullable=True)
        for column in newest.columns
    )
    values = [
        rows.column(column.name).cast(column.type)
        if column.name in given and holds(column.type, rows.schema.field(column.name).type)
        else pa.nulls(len(changes), column.type)
        for column in columns
    ]
    schema = replace(newest, columns=columns)
    return replace(
        changes,
        schema=schema,
        rows=pa.RecordBatch.from_arrays(values, schema=schema.arrow),
        before=None,
    )
