"""Columns of a target's table besides those of the source, by mode."""

from collections.abc import Mapping

import pyarrow as pa

from headwater.sinks.sink import DELETED_AT

OWN = "_headwater_"
"""Prefix of our own columns."""
OP, TOPIC, PARTITION, OFFSET, COMMITTED_AT = (
    f"{OWN}{name}" for name in ("op", "topic", "partition", "offset", "committed_at")
)
VALID_FROM, VALID_TO, IS_CURRENT = (
    f"{OWN}{name}" for name in ("valid_from", "valid_to", "is_current")
)


def own_columns(moment: pa.DataType) -> Mapping[str, Mapping[str, pa.DataType]]:
    """`moment`: the target's type of a time."""
    return {
        "mirror": {},
        "soft_delete": {DELETED_AT: moment},
        "append": {
            OP: pa.string(),
            TOPIC: pa.string(),
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
            COMMITTED_AT: moment,
        },
        "scd2": {VALID_FROM: moment, VALID_TO: moment, IS_CURRENT: pa.bool_()},
    }
