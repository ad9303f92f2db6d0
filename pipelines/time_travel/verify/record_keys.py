"""What the rows of records are called, by the places of the records in the log."""

from collections.abc import Collection, Mapping
from typing import Any

from headwater.core_log.model.log import Log
from headwater.pipelines.loops.deliver.records_by_offset import RecordOffset, changes_at
from headwater.pipelines.loops.deliver.slice_reader import AfterLog
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns


async def keys_at(
    log: Log, places: Collection[RecordOffset], after_log: AfterLog, shape: ComparedColumns
) -> Mapping[RecordOffset, Mapping[str, Any]]:
    """What the rows there are called."""
    of_keys = ComparedColumns(shape.schema, shape.schema.key)
    named: dict[RecordOffset, Mapping[str, Any]] = {}
    for changes in await changes_at(log, places, after_log):
        assert changes.log_partition is not None, "what was read knows its place"
        assert changes.log_offsets is not None, "what was read knows its place"
        keys = of_keys.project(changes.rows).to_pylist()
        for offset, key in zip(changes.log_offsets.to_pylist(), keys, strict=True):
            named[changes.log_partition, offset] = key
    return named
