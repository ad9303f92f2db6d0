"""How large tables are, and into which stretches of pages their reading is divided."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.snapshot.progress import LeafProgress
from headwater.core_log.foundation.errors import SourceUnavailable

CHUNK_BYTES = 4 << 20
"""Of pages, large values included: no chunk is larger than that however few rows it has, so that
a few of them fit into memory."""

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
"""One question for any number of tables; partitions are read one by one, as only they hold rows.
The file is the one that the snapshot shows, which may have been replaced since."""

FORM = """
SELECT pg_catalog.pg_relation_filenode(%(leaf)s)::int8, coalesce(array_agg(attname::text), '{}'),
    coalesce(array_agg(atttypid::int8), '{}')
FROM pg_catalog.pg_attribute
WHERE attrelid = %(leaf)s AND attnum > 0 AND NOT attisdropped
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """Of a leaf, as it is now."""

    root: int
    namespace: str
    name: str
    leaf: LeafProgress
    rows_expected: int
    bytes: int

    def chunk_pages(self, rows: int) -> int:
        """How many pages make about that many rows, and not too many bytes."""
        pages = max(1, self.leaf.pages)
        by_bytes = CHUNK_BYTES * pages // max(1, self.bytes)
        by_rows = rows * pages // max(1, self.rows_expected)
        return max(1, min(by_bytes, by_rows))


async def sizes_of(connection: PgConnection, roots: Sequence[int]) -> list[TableSize]:
    """Tables that are gone are left out."""
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


async def check_unchanged(
    connection: PgConnection, table: CapturedTable, leaf: LeafProgress
) -> None:
    """To be asked beside an older snapshot, once that has read from the leaf, which keeps it as it
    is from then on. One that was written anew before, as another type of a column asks for, is
    empty to the snapshot, and no row of it is streamed; and a column that was replaced by another
    of its name has been read as what it is not."""
    with in_our_words("the tables' files cannot be seen"):
        cursor = await connection.execute(FORM, {"leaf": leaf.oid})
        [[file, names, types]] = await cursor.fetchall()
    now = dict(zip(names, types, strict=True))
    read = table.schema.names
    is_same = all(
        now.get(each.name) == each.type_oid for each in table.columns if each.name in read
    )
    if file != leaf.filenode or not is_same:
        raise table_changed_error(table.table)


def table_changed_error(table: object) -> SourceUnavailable:
    return SourceUnavailable(
        "a table was changed or dropped before its rows were read", table=str(table)
    )


def _expect(estimate: float, analyzed_pages: int, pages: int) -> int:
    """As the server's planner does it: so many rows on a page as when it was last looked at."""
    if estimate < 0 or not analyzed_pages:
        return 0
    return round(estimate / analyzed_pages * pages)
