"""The tables of a made-up history at the very position that the log has reached."""

from collections.abc import AsyncIterator, Callable

import numpy as np
import pyarrow as pa

from headwater.connectors.generator.settings import GeneratorSettings
from headwater.connectors.generator.truth import truth
from headwater.connectors.source import SourceSnapshot
from headwater.core_log.model.changes import ColumnOrValue, Operation, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

PAGE_ROWS = 50_000


def snapshot_at(
    transaction: int,
    settings: GeneratorSettings,
    schemas: list[TableSchema],
    positions: Positions,
    source: Callable[[TableId], dict[str, ColumnOrValue]],
) -> SourceSnapshot:
    """After all transactions below this one; made when the first table is asked for."""
    made: dict[TableId, pa.Table] = {}

    async def rows(table: TableId) -> AsyncIterator[TableChanges]:
        if not made:
            made.update(truth(settings, transaction))
        schema = next(each for each in schemas if each.table == table)
        for batch in made[table].combine_chunks().to_batches(max_chunksize=PAGE_ROWS):
            kinds = np.full(batch.num_rows, Operation.READ, np.uint8)
            yield TableChanges(schema, batch, pa.array(kinds), source(table))

    return SourceSnapshot(positions, rows)
