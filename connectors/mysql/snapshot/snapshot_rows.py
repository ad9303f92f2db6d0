"""Rows of a snapshot as changes."""

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.server.server_identity import MysqlSnapshotPoint
from headwater.core_log.model.changes import (
    Operation,
    Phase,
    Replacement,
    TableChanges,
    source_times,
)


def read_changes(
    origin: MysqlOrigin,
    table: MysqlTable,
    rows: pa.RecordBatch,
    point: MysqlSnapshotPoint,
    kind: str,
) -> TableChanges:
    """Returns rows of a snapshot as changes."""
    return TableChanges(
        schema=table.schema,
        rows=rows,
        operations=pa.array(np.full(rows.num_rows, Operation.READ, np.uint8)),
        source=origin.block(
            table.table,
            source_times(point.at_us),
            snapshot=kind,
            file=point.place.file,
            position=point.place.position,
        ),
        commits=str(point.place),
    )


def completion_of(origin: MysqlOrigin, table: MysqlTable, point: MysqlSnapshotPoint) -> Replacement:
    """Returns the end of a re-read, with what the deletes of missing rows say."""
    source = origin.block(
        table.table,
        source_times(point.at_us),
        snapshot="incremental",
        file=point.place.file,
        position=point.place.position,
    )
    return Replacement(table.schema, Phase.COMPLETE, commit=str(point.place), source=source)
