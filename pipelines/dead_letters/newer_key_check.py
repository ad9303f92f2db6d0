"""Whether somebody has appended to a key since it was looked at: then what was found is old."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.arrow_codec import RecordColumns
from headwater.core_log.rows.codec import TRUNCATE_KEY

FETCHES_MAX = 20


def records_of(columns: RecordColumns, wanted: pa.BinaryArray) -> list[tuple[bytes, int, bool]]:
    """Key, offset and whether it is more than a tombstone, of the records with these keys."""
    rows = np.flatnonzero(np.asarray(pc.is_in(columns.keys, value_set=wanted)))
    keys = columns.keys.take(pa.array(rows)).to_pylist()
    changes = np.asarray(columns.values.is_valid())[rows].tolist()
    return list(zip(keys, columns.offsets[rows].tolist(), changes, strict=True))


async def is_overtaken(
    log: Log, partition: TopicPartition, keys: Collection[bytes | None], *, start: int, end: int
) -> bool:
    """Whether anything of these keys, decided or not, stands between what we saw and ours."""
    wanted = pa.array([*(key for key in keys if key is not None), TRUNCATE_KEY], pa.binary())
    for _ in range(FETCHES_MAX):
        if start >= end:
            return False
        for part in await log.fetch(
            {partition: start}, limit=FetchLimit(), isolation=Isolation.UNCOMMITTED
        ):
            columns = arrow_codec.decode(part.data, from_offset=start, partition=partition)
            if any(offset < end for _, offset, _ in records_of(columns, wanted)):
                return True
            start = part.next_offset
    return True  # what cannot be read yet may be of one of the keys
