"""What is left of a row in the change that deletes it."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableSchema


def without_what_went(
    schema: TableSchema, rows: pa.RecordBatch, codes: npt.NDArray[np.uint8]
) -> pa.RecordBatch:
    """Of deletes only the key is kept, since most databases say no more."""
    stays = codes != Operation.DELETE
    if stays.all():
        return rows
    mask = pa.array(stays)
    columns = [
        column if name in schema.key else pc.if_else(mask, column, pa.scalar(None, column.type))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
