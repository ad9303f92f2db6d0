"""A tombstone behind every delete, so that compaction and every Kafka tool understand it."""

import numpy as np
import pyarrow as pa

from headwater.core_log.model.changes import Operation
from headwater.core_log.rows.codec import Encoded


def with_tombstones(keys: pa.Array, values: pa.Array, operations: pa.UInt8Array) -> Encoded:
    is_delete = operations.to_numpy() == Operation.DELETE
    if not is_delete.any():
        return Encoded(keys, values, None)
    counts = 1 + is_delete
    changes = np.repeat(np.arange(len(is_delete)), counts)
    is_tombstone = np.zeros(len(changes), np.bool_)
    is_tombstone[np.cumsum(counts)[is_delete] - 1] = True
    return Encoded(
        keys.take(pa.array(changes)),
        values.take(pa.array(changes, mask=is_tombstone)),
        pa.array(changes),
    )
