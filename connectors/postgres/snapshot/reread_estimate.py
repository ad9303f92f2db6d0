"""How much is to be read of a table that is to be read again, as the catalog says it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize, sizes_of
from headwater.connectors.snapshot.reread_estimate import (
    ROW_BYTES,
    RereadEstimate,
    estimate_reread,
)
from headwater.connectors.source import FreeSpace

if TYPE_CHECKING:
    from headwater.connectors.postgres.settings import SnapshotSettings


async def estimate_of(
    connection: PgConnection, oid: int, settings: "SnapshotSettings", free: Sequence[FreeSpace]
) -> RereadEstimate:
    sizes = await sizes_of(connection, [oid])
    return estimate_reread(
        sum(map(_rows_of, sizes)),
        sum(each.bytes for each in sizes),
        rows_per_second=settings.max_rows_per_second,
        between=settings.between,
        free=free,
    )


def _rows_of(size: TableSize) -> int:
    return size.rows_expected or size.bytes // ROW_BYTES
