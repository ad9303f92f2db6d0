"""Rows of a snapshot as changes."""

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.core_log.model.changes import Operation, TableChanges, source_times


def read_changes(
    origin: MysqlOrigin,
    table: MysqlTable,
    rows: pa.RecordBatch,
    place: FilePosition,
    kind: str,
    *,
    now_ms: int,
) -> TableChanges:
    """Returns rows of a snapshot as changes."""
    return TableChanges(
        schema=table.schema,
        rows=rows,
        operations=pa.array(np.full(rows.num_rows, Operation.READ, np.uint8)),
        source=origin.block(
            table.table,
            source_times(now_ms * 1_000),
            snapshot=kind,
            file=place.file,
            position=place.position,
        ),
        commits=str(place),
    )
