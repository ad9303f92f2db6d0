"""A first comparison of a source during the read of the log: whether anything differs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.client.gather import let_go
from headwater.core_log.model.log import Log
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.loops.deliver.records_by_offset import RecordOffset, changes_at
from headwater.pipelines.loops.deliver.slice_reader import AfterLog
from headwater.pipelines.loops.thread_offload import beside
from headwater.pipelines.time_travel.verify.keyed_diff import ComparisonResult
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogState

NOTHING: Digests = np.zeros(0, np.uint64)


class DigestPrecheck:
    """Rows as two numbers each, in the order of arrival."""

    def __init__(self, shape: ComparedColumns) -> None:
        self._shape = shape
        self._keys, self._rows = [NOTHING], [NOTHING]

    def take(self, rows: pa.RecordBatch) -> None:
        keys, digests = self._shape.digests(self._shape.project(rows))
        self._keys.append(keys)
        self._rows.append(digests)

    def compare(self, state: LogState) -> ComparisonResult | None:
        """Returns None if anything differs: a `KeyedDiff` then finds the keys."""
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        if len(keys) != len(state):
            return None
        order = np.argsort(keys)
        if (keys[order] != state.keys).any() or (rows[order] != state.rows).any():
            return None
        return ComparisonResult(len(state), len(state))


Glancing = asyncio.Future[DigestPrecheck]


@asynccontextmanager
async def glancing(
    batches: AsyncGenerator[pa.RecordBatch, None], shape: ComparedColumns
) -> AsyncIterator[Glancing]:
    """Runs the check; a caller that does not wait gets no result."""
    coming = asyncio.ensure_future(_glance(batches, shape))
    try:
        yield coming
    finally:
        await let_go(coming)


async def _glance(
    batches: AsyncGenerator[pa.RecordBatch, None], shape: ComparedColumns
) -> DigestPrecheck:
    glance = DigestPrecheck(shape)
    async with aclosing(batches):
        async for batch in batches:
            await beside(partial(glance.take, batch), batch.nbytes)
    return glance


async def keys_at(
    log: Log, places: Collection[RecordOffset], after_log: AfterLog, shape: ComparedColumns
) -> Mapping[RecordOffset, Mapping[str, Any]]:
    """Returns the keys of the rows."""
    of_keys = ComparedColumns(shape.schema, shape.schema.key)
    named: dict[RecordOffset, Mapping[str, Any]] = {}
    for changes in await changes_at(log, places, after_log):
        assert changes.log_partition is not None, "what was read knows its place"
        assert changes.log_offsets is not None, "what was read knows its place"
        keys = of_keys.project(changes.rows).to_pylist()
        for offset, key in zip(changes.log_offsets.to_pylist(), keys, strict=True):
            named[changes.log_partition, offset] = key
    return named
