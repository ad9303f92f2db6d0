"""Where each source stands: kept in the log, by the very transactions that hold the data."""

from collections.abc import Mapping

import orjson

from headwater.core_log.foundation.errors import check_format
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.internal_topics import POSITIONS, home_of
from headwater.pipelines.journal.read_to_end import read_decided

FORMAT_VERSION = 1


def positions_home(pipeline: str) -> TopicPartition:
    return home_of(POSITIONS, pipeline)


def encode_positions(pipeline: str, positions: Mapping[str, str | None], *, now_ms: int) -> Batch:
    """One keyed record per part; None takes a part back."""
    keys = [orjson.dumps([pipeline, part]) for part in positions]
    values = [
        None if position is None else orjson.dumps({"version": 1, "position": position})
        for position in positions.values()
    ]
    return small_batch(list(zip(keys, values, strict=True)), now_ms=now_ms)


async def load_positions(log: Log, pipeline: str) -> Positions:
    """The newest committed position of every part. Call it after the writer was opened: that
    fences whoever else might still move them."""
    found: dict[str, str] = {}
    async for columns in read_decided(log, positions_home(pipeline)):
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            owner, part = orjson.loads(key)
            if owner != pipeline:
                continue
            if value is None:
                found.pop(part, None)
                continue
            content = orjson.loads(value)
            check_format(
                content["version"],
                FORMAT_VERSION,
                "a position was written",
                pipeline=pipeline,
                part=part,
            )
            found[part] = content["position"]
    return found
