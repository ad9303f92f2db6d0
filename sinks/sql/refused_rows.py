"""Rows that a table of the target cannot hold, and why."""

from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.rows.column_types import type_text
from headwater.core_log.rows.value_classes import scalar_class
from headwater.sinks.sql.change_buffer import BufferedChanges
from headwater.sinks.sql.failures import RefusedRow
from headwater.sinks.sql.table_layout import SqlTableLayout
from headwater.sinks.type_conversion import find_changed


def describe(chunk: BufferedChanges, row: int, refused: RefusedRow) -> str:
    if not refused.column:
        return refused.why
    kind = chunk.schema.column(refused.column).type
    value = scalar_class(chunk.rows.column(refused.column)[row])
    column = f"column {refused.column!r} comes as {type_text(kind)}"
    return f"{refused.why}: {column} and the value is {value}"


def rejected_error(chunk: BufferedChanges, reasons: dict[int, str]) -> RecordsRejected:
    """Returns the error for one partition, the first record's; others follow when the slice is
    repeated."""
    origin = int(chunk.origins[min(reasons)])
    partition = chunk.partitions[origin]
    found = {
        int(chunk.offsets[row].as_py()): why
        for row, why in reasons.items()
        if int(chunk.origins[row]) == origin
    }
    return RecordsRejected(
        "records do not fit the target's table",
        topic=partition.topic,
        partition=partition.partition,
        reasons=found,
    )


def find_unlike(layout: SqlTableLayout, chunk: BufferedChanges) -> dict[int, str]:
    """Returns rows that a database would store with another value, and why.

    Most databases round numbers and truncate timestamps silently. Only columns whose types stay are
    checked.
    """
    found: dict[int, str] = {}
    for name, kind in layout.stays.items():
        is_asked = name in chunk.schema.key or layout.mode == "append"
        for row in find_changed(chunk.rows.column(name), kind):
            if is_asked or not chunk.deleted[row]:  # a deleted row needs only its key
                value = scalar_class(chunk.rows.column(name)[row])
                found[row] = f"column {name!r} does not fit into {kind}: the value is {value}"
    return found
