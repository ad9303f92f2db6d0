"""The sizes of tables, and the division of their pages into chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.snapshot.progress import LeafProgress
from headwater.connectors.snapshot.reread_limits import ROW_BYTES, RereadEstimate, estimate_reread
from headwater.connectors.source import FreeSpace
from headwater.core_log.foundation.errors import SourceUnavailable

if TYPE_CHECKING:
    from headwater.connectors.postgres.settings import SnapshotSettings

CHUNK_BYTES = 4 << 20
"""Size of a chunk's pages, including large values: a limit for tables of few large rows, so that a
few chunks fit into memory."""

LEAVES = """
WITH wanted AS (SELECT unnest({roots}::oid[]) AS root), leaf AS (
    SELECT root, root AS oid FROM wanted
    UNION ALL
    SELECT root, tree.relid FROM wanted
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root) tree WHERE tree.relid <> root)
SELECT leaf.root::int8, leaf.oid::int8, n.nspname, c.relname,
    c.relfilenode::int8, c.reltuples, c.relpages,
    pg_catalog.pg_relation_size(leaf.oid)
        / pg_catalog.current_setting('block_size')::int8,
    pg_catalog.pg_table_size(leaf.oid)
FROM leaf
JOIN pg_catalog.pg_class c ON c.oid = leaf.oid AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY leaf.root, leaf.oid
"""
"""One query for any number of tables. Partitions are read one by one, as only they hold rows. The
file is the one that the snapshot shows; it may have been replaced since."""

FORM = """
SELECT pg_catalog.pg_relation_filenode(%(leaf)s)::int8, coalesce(array_agg(attname::text), '{}'),
    coalesce(array_agg(atttypid::int8), '{}'), coalesce(array_agg(attnum::int4), '{}')
FROM pg_catalog.pg_attribute
WHERE attrelid = %(table)s AND attnum > 0 AND NOT attisdropped
"""
"""A partition's columns are altered with those of its table, and have other numbers."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """The present size of a leaf table."""

    root: int
    namespace: str
    name: str
    leaf: LeafProgress
    rows_expected: int
    bytes: int

    def chunk_pages(self, rows: int) -> int:
        """Returns how many pages have about that many rows, and not too many bytes."""
        pages = max(1, self.leaf.pages)
        by_bytes = CHUNK_BYTES * pages // max(1, self.bytes)
        by_rows = rows * pages // max(1, self.rows_expected)
        return max(1, min(by_bytes, by_rows))


async def sizes_of(connection: PgConnection, roots: Sequence[int]) -> list[TableSize]:
    """Returns the sizes; dropped tables are left out."""
    query = sql.SQL(LEAVES).format(roots=sql.Literal(list(roots)))
    with in_our_words("the tables' sizes cannot be seen"):
        rows = await (await connection.execute(query)).fetchall()
    return [
        TableSize(
            root=root,
            namespace=namespace,
            name=name,
            leaf=LeafProgress(oid, filenode, pages),
            rows_expected=_expect(estimate, analyzed_pages, pages),
            bytes=size,
        )
        for root, oid, namespace, name, filenode, estimate, analyzed_pages, pages, size in rows
        if pages is not None and size is not None
    ]


async def estimate_of(
    connection: PgConnection, oid: int, settings: "SnapshotSettings", free: Sequence[FreeSpace]
) -> RereadEstimate:
    """Returns how much a re-read of the table would read, by the catalog."""
    sizes = await sizes_of(connection, [oid])
    return estimate_reread(
        sum(each.rows_expected or each.bytes // ROW_BYTES for each in sizes),
        sum(each.bytes for each in sizes),
        rows_per_second=settings.max_rows_per_second,
        between=settings.between,
        free=free,
    )


async def check_unchanged(
    connection: PgConnection, table: CapturedTable, leaf: LeafProgress
) -> None:
    """Raises if the leaf was rewritten or dropped. It is called beside an older snapshot, after
    that one has read from the leaf and so locked it. A leaf rewritten before looks empty to the
    snapshot, and its rows are not streamed; a replaced column would be read under the wrong
    name."""
    with in_our_words("the tables' files cannot be seen"):
        cursor = await connection.execute(FORM, {"leaf": leaf.oid, "table": table.oid})
        [[file, names, types, numbers]] = await cursor.fetchall()
    now = dict(zip(names, zip(types, numbers, strict=True), strict=True))
    read = table.schema.names
    is_same = all(
        now.get(each.name) == (each.type_oid, each.number)
        for each in table.columns
        if each.name in read
    )
    if file != leaf.filenode or not is_same:
        raise table_changed_error(table.table)


def table_changed_error(table: object) -> SourceUnavailable:
    return SourceUnavailable(
        "a table was changed or dropped before its rows were read", table=str(table)
    )


def _expect(estimate: float, analyzed_pages: int, pages: int) -> int:
    """Returns the expected rows by the server planner's rule: as many per page as at the last
    ANALYZE."""
    if estimate < 0 or not analyzed_pages:
        return 0
    return round(estimate / analyzed_pages * pages)
