"""How a transform fails: as a whole, or for single records that can be set aside."""

from collections.abc import Mapping

from core_log.changes import TableChanges
from core_log.errors import HeadwaterError, RecordsRejected


class TransformFailed(HeadwaterError):
    """A rule cannot be applied to a table's changes; `table` and `rule` among the facts name it."""


def rejection(problem: str, changes: TableChanges, reasons: Mapping[int, str]) -> HeadwaterError:
    """The error for the rows at these places: by their offsets, where they have some."""
    if changes.log_partition is None or changes.log_offsets is None:
        return TransformFailed(
            problem,
            table=str(changes.schema.table),
            rows=sorted(reasons)[:20],
            why=min(reasons.items())[1],
        )
    return RecordsRejected(
        problem,
        topic=changes.log_partition.topic,
        partition=changes.log_partition.partition,
        reasons={changes.log_offsets[row].as_py(): reason for row, reason in reasons.items()},
    )
