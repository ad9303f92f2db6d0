"""What the rows of records are called, by the places of the records in the log."""

from collections.abc import Collection, Mapping
from typing import Any

from core_log.model.log import Log
from pipelines.loops.deliver.records_by_offset import Place, changes_at
from pipelines.loops.deliver.slice_reader import AfterLog
from pipelines.time_travel.verify.log_state import Shape


async def keys_at(
    log: Log, places: Collection[Place], after_log: AfterLog, shape: Shape
) -> Mapping[Place, Mapping[str, Any]]:
    """What the rows there are called."""
    of_keys = Shape(shape.schema, shape.schema.key)
    named: dict[Place, Mapping[str, Any]] = {}
    for changes in await changes_at(log, places, after_log):
        assert changes.log_partition is not None, "what was read knows its place"
        assert changes.log_offsets is not None, "what was read knows its place"
        keys = of_keys.projected(changes.rows).to_pylist()
        for offset, key in zip(changes.log_offsets.to_pylist(), keys, strict=True):
            named[changes.log_partition, offset] = key
    return named
