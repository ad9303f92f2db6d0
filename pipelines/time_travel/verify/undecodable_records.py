"""Records that nobody could decode: what the log says of their keys is not known."""

from collections.abc import Mapping, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.pipelines.journal.read_to_end import read_decided
from headwater.pipelines.loops.deliver.records_by_offset import RecordOffset
from headwater.pipelines.time_travel.history.cut_points import Ends


async def still_unread(
    log: Log, skipped: Mapping[TopicPartition, Set[int]], ends: Ends
) -> list[RecordOffset]:
    """Those of them below `ends` that no later record of the key, nor a truncate, has replaced."""
    found: list[RecordOffset] = []
    for partition, offsets in sorted(skipped.items()):
        below = sorted(offset for offset in offsets if offset < ends.get(partition, 0))
        if below:
            newest = await _newest(log, partition, below, end=ends[partition])
            found += [(partition, offset) for offset in newest]
    return found


async def _newest(
    log: Log, partition: TopicPartition, offsets: list[int], *, end: int
) -> list[int]:
    unread: dict[bytes | int, int] = {}
    async for columns in read_decided(log, partition, from_offset=offsets[0]):
        is_unread = np.isin(columns.offsets, offsets)
        keys = columns.keys.filter(pa.array(is_unread)).drop_null().to_pylist()
        known = [each for each in unread if isinstance(each, bytes)]
        wanted = pa.array([*keys, *known, TRUNCATE_KEY], pa.binary())
        rows = np.flatnonzero(is_unread | np.asarray(pc.is_in(columns.keys, value_set=wanted)))
        chosen = columns.keys.take(pa.array(rows)).to_pylist()
        for row, key in zip(rows.tolist(), chosen, strict=True):
            offset = int(columns.offsets[row])
            if offset >= end:
                break
            if key == TRUNCATE_KEY:
                unread.clear()
            elif is_unread[row]:
                unread[offset if key is None else key] = offset
            else:
                unread.pop(key, None)
        if len(columns.offsets) and columns.offsets[-1] >= end:
            break
    return sorted(unread.values())
