"""The tables of a database from its catalog: columns, keys, partitions, sizes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.connectors.postgres.publication.published_tables import (
    PublishedPart,
    look_for_shares,
)
from headwater.connectors.postgres.publication.replica_identity import RefusedTable, identity_cure
from headwater.connectors.postgres.types.column_reader import ColumnPlan, with_missing
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.foundation.name_patterns import Pattern, Patterns
from headwater.core_log.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from psycopg import AsyncConnection

NAMES = """
SELECT c.oid::int8, n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname, c.relname
"""
"""A partition is not a table of its own: its rows belong to the partitioned table."""

MISSING = """
WITH RECURSIVE tree AS (
    SELECT oid AS root, oid FROM unnest(%(oids)s::oid[]) AS wanted(oid)
    UNION ALL
    SELECT tree.root, i.inhrelid FROM tree
    JOIN pg_catalog.pg_class parent ON parent.oid = tree.oid AND parent.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
),
missing AS MATERIALIZED (
    SELECT tree.root, att.attname, string_agg(DISTINCT att.attmissingval::text, '') AS value
    FROM tree JOIN pg_catalog.pg_attribute att ON att.attrelid = tree.oid AND att.atthasmissing
    GROUP BY 1, 2
)
"""
"""The values of rows that are older than a column; of partitions, several if they differ. It takes
no lock, as `pg_partition_tree` would."""

TABLES = f"""
{MISSING}
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       has_table_privilege(c.oid, 'SELECT'),
       (k.indkey::int2[])[0:k.indnkeyatts - 1], (i.indkey::int2[])[0:i.indnkeyatts - 1],
       a.numbers, a.names, a.types, a.modifiers, a.dimensions, a.required, a.generated, a.missing,
       CASE WHEN c.relkind = 'r' THEN c.reltuples::int8 ELSE -1 END,
       CASE WHEN %(is_measured)s AND c.relkind = 'r' THEN coalesce(pg_relation_size(c.oid), 0)
           ELSE 0 END,
       coalesce((SELECT json_agg((u.indkey::int2[])[0:u.indnkeyatts - 1])
           FROM pg_catalog.pg_index u WHERE u.indrelid = c.oid AND u.indisunique
           AND u.indimmediate AND u.indisvalid AND u.indpred IS NULL), '[]')
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisreplident
LEFT JOIN LATERAL (
    SELECT array_agg(attnum::int8 ORDER BY attnum) AS numbers,
           array_agg(att.attname::text ORDER BY attnum) AS names,
           array_agg(atttypid::int8 ORDER BY attnum) AS types,
           array_agg(atttypmod ORDER BY attnum) AS modifiers,
           array_agg(attndims::int4 ORDER BY attnum) AS dimensions,
           array_agg(attnotnull ORDER BY attnum) AS required,
           array_agg(attgenerated::text ORDER BY attnum) AS generated,
           array_agg(missing.value ORDER BY attnum) AS missing
    FROM pg_catalog.pg_attribute att
    LEFT JOIN missing ON missing.root = att.attrelid AND missing.attname = att.attname
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
) a ON true
WHERE c.oid = ANY(%(oids)s)
"""
"""An index lists its included columns after those of its key. Measuring a table locks it for that
moment."""

PARTITIONS = """
WITH RECURSIVE tree AS (
    SELECT inhparent AS root, inhrelid AS oid FROM pg_catalog.pg_inherits
    WHERE inhparent = ANY(%(oids)s)
    UNION ALL
    SELECT tree.root, i.inhrelid FROM tree
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.root::int8, c.oid::int8, n.nspname, c.relname, nullif(c.reltuples, -1)::int8,
       CASE WHEN %(is_measured)s THEN coalesce(pg_relation_size(c.oid), 0) ELSE 0 END,
       c.relreplident::text, coalesce(k.names, '{}')
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT array_agg(a.attname::text) AS names
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = c.oid
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
) k ON true
WHERE c.relkind = 'r'
ORDER BY n.nspname, c.relname
"""

DEFAULT, NOTHING, FULL, INDEX = "d", "n", "f", "i"
"""The kinds of a replica identity."""


class CatalogColumn(NamedTuple):
    """A column of the table, whether captured or not."""

    name: str
    type_oid: int
    type_modifier: int
    dimensions: int
    """Declared dimensions of an array; 0 for other types."""
    is_nullable: bool
    is_generated: bool
    """Computed from other columns. Neither captured nor read, because the stream does not contain
    it."""
    number: int = 0
    """The column's permanent number: a rename does not change it, and no other column of the table
    gets it."""
    missing: str | None = None
    """The value of rows that are older than the column, as an array of one item."""


class TablePartition(NamedTuple):
    """A table that holds rows of a partitioned table."""

    oid: int
    table: TableId
    rows_estimate: int | None
    bytes: int
    identity: str
    """`DEFAULT`, `NOTHING`, `FULL` or `INDEX`, whatever that of the table is."""
    index_columns: Sequence[str]
    """Columns of the index that is its identity. With `FULL` those of its primary key, which was
    the identity before unless it was changed."""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table chosen by the patterns. Its schema has no generated columns, no columns of types that
    `unknown_types: skip` leaves out, and no unpublished columns."""

    oid: int
    relkind: str
    """`r` for a table, `p` for a partitioned one."""
    schema: TableSchema
    """Its key is the primary key, else the one in `keys`, else the index that is the replica
    identity."""
    plans: tuple[ColumnPlan, ...]
    """Plans of the schema's columns, in their order."""
    columns: tuple[CatalogColumn, ...]
    """All columns, in the table's order."""
    primary_key: tuple[str, ...]
    """In the order of its definition; empty if there is none."""
    identity: str
    """`DEFAULT`, `NOTHING`, `FULL` or `INDEX`."""
    identity_columns: tuple[str, ...]
    """The columns of a deleted row that the server sends; with `FULL` all of them."""
    partitions: tuple[TablePartition, ...]
    """The leaf partitions of a partitioned table."""
    rows_estimate: int | None
    """As of the last ANALYZE; None before the first."""
    bytes: int
    """Size of its rows (or its partitions') on disk, without large values and indexes."""
    is_readable: bool
    """Whether our role may SELECT from it."""
    condition: str = ""
    """SQL condition of the published rows; empty if all are published."""
    has_unique_keys: bool = True
    """Whether no two rows ever have the same key, even inside of a transaction. False if a
    constraint is deferrable, or the file chose the key."""

    has_all_columns: bool = True
    """Whether all columns but generated ones are published."""

    @property
    def table(self) -> TableId:
        return self.schema.table

    @property
    def keyless_partitions(self) -> list[TableId]:
        """Returns partitions for which the server does not send the key with every update and
        delete. It refuses every change of a partition without any identity."""
        known = {
            each.table for each in self.partitions if each.identity != FULL and each.index_columns
        }
        return [each for each in self.partitions_without(self.schema.key) if each in known]

    def partitions_without(self, key: Collection[str]) -> list[TableId]:
        """Returns partitions in which an update without the row before may have changed these
        columns; all of them if no partition is excluded."""
        others = [each for each in self.partitions if not set(key) <= set(each.index_columns)]
        if len(others) < len(self.partitions):
            # A partition without an index sends the row before with every update.
            others = [each for each in others if each.index_columns]
        return [each.table for each in others]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Reads the tables to capture from the catalog."""

    patterns: Sequence[str]
    """The chosen tables; a setting of the source, like `keys`."""
    keys: Mapping[str, Sequence[str]]
    publication: str
    """Columns and rows that it leaves out are not captured; None while it does not exist."""
    book: TypeMap

    def chooses_key(self, table: TableId) -> bool:
        """Whether the file chooses the table's key."""
        return any(Pattern(text).matches(str(table)) for text in self.keys)

    def key_of_file(self, table: TableId) -> tuple[str, ...]:
        """Returns the key that the file chooses; empty if it chooses none."""
        names = str(table)
        chosen = (columns for text, columns in self.keys.items() if Pattern(text).matches(names))
        return tuple(next(chosen, ()))

    async def tables(
        self, connection: "AsyncConnection[Any]"
    ) -> tuple[list[CapturedTable], list[RefusedTable]]:
        """Returns the tables by name, without those that have no column to capture. It takes four
        statements for any number of tables."""
        chosen = Patterns(self.patterns)
        names = await (await connection.execute(NAMES)).fetchall()
        oids = [oid for oid, *name in names if chosen.matches(str(TableId(*name)))]
        found, refused = await self.told_of(connection, oids, is_measured=True)
        return [each for each in found if each.plans], refused

    async def tables_of(
        self, connection: "AsyncConnection[Any]", oids: Sequence[int]
    ) -> list[CapturedTable]:
        """Returns these tables without dropped ones and those that cannot be captured."""
        return (await self.told_of(connection, oids))[0]

    async def told_of(
        self, connection: "AsyncConnection[Any]", oids: Sequence[int], *, is_measured: bool = False
    ) -> tuple[list[CapturedTable], list[RefusedTable]]:
        """Returns tables by number, and those that contradict the settings. Sizes are only measured
        on request, which waits while another session alters a partition; a table with
        unpublished rows is always waited for."""
        if not oids:
            return [], []
        asked = {"oids": list(oids), "is_measured": is_measured}
        rows = await (await connection.execute(TABLES, asked)).fetchall()
        parents = [row[0] for row in rows if row[3] == "p"]
        partitions: dict[int, list[TablePartition]] = {oid: [] for oid in parents}
        if parents:
            for root, oid, schema, name, *rest in await (
                await connection.execute(PARTITIONS, {**asked, "oids": parents})
            ).fetchall():
                partitions[root].append(TablePartition(oid, TableId(schema, name), *rest))
        await self.book.learn(connection, {oid for row in rows for oid in row[10] or ()})
        found_shares = await look_for_shares(connection, self.publication, oids)
        shares = {each.oid: each for each in found_shares}
        keys = [(Pattern(text), tuple(columns)) for text, columns in self.keys.items()]
        found, refused = list[CapturedTable](), list[RefusedTable]()
        for row in map(_Row._make, rows):
            parts, share = partitions.get(row.oid, []), shares.get(row.oid)
            try:
                found.append(_capture(row, parts, keys, share, self.book))
            except SourceRejected as error:
                table = TableId(row.namespace, row.name)
                refused.append(RefusedTable(row.oid, table, error.statement, error.hint))
        return sorted(found, key=lambda each: each.table), refused


class _Row(NamedTuple):
    oid: int
    namespace: str
    name: str
    relkind: str
    identity: str
    is_readable: bool
    primary_key: list[int] | None
    identity_index: list[int] | None
    numbers: list[int] | None
    names: list[str] | None
    types: list[int] | None
    modifiers: list[int] | None
    dimensions: list[int] | None
    required: list[bool] | None
    generated: list[str] | None
    missing: list[str | None] | None
    row_count: int
    bytes: int
    unique: list[list[int]]
    """The columns of each index that never allows equal rows; 0 for an expression."""


def _capture(
    row: _Row,
    partitions: Sequence[TablePartition],
    keys: Sequence[tuple[Pattern, tuple[str, ...]]],
    share: PublishedPart | None,
    book: TypeMap,
) -> CapturedTable:
    table = TableId(row.namespace, row.name)
    columns = tuple(
        CatalogColumn(
            name, type_oid, modifier, dimensions, not required, bool(generated), number, missing
        )
        for name, type_oid, modifier, dimensions, required, generated, number, missing in zip(
            row.names or (), row.types or (), row.modifiers or (), row.dimensions or (),
            row.required or (), row.generated or (), row.numbers or (), row.missing or (),
            strict=True,
        )
    )  # fmt: skip
    by_number = dict(zip(row.numbers or (), row.names or (), strict=True))
    primary_key = _name(row.primary_key, by_number)
    index_key = _name(row.identity_index, by_number)
    listed = None if share is None else share.columns
    plans = tuple(
        plan
        for column in columns
        if not column.is_generated
        and (listed is None or column.name in listed)
        and (plan := plan_of(column, book)) is not None
    )
    captured = {plan.column.name for plan in plans}
    key = primary_key if captured.issuperset(primary_key) else ()
    key = key or _chosen_key(table, columns, keys) or index_key
    if missing := set(key or primary_key) - captured:
        raise SourceRejected(
            "the key of a table has columns that are not captured: they are generated, not"
            " published, or of types that are left out",
            columns=", ".join(sorted(missing)),
            hint=f"leave the table out of `tables` of the source, or: {identity_cure([table])} and"
            " name other columns under `keys` of the source; since PostgreSQL 18 the server then"
            " refuses to change rows with generated columns, but for those of a publication with"
            " publish_generated_columns = stored",
        )
    schema = TableSchema(table, tuple(plan.column for plan in plans), key, id=row.oid)
    estimates = [part.rows_estimate for part in partitions] if partitions else [row.row_count]
    known = [count for count in estimates if count is not None and count >= 0]
    return CapturedTable(
        row.oid,
        row.relkind,
        schema,
        plans,
        columns,
        primary_key,
        row.identity,
        _identity_columns(row, columns, primary_key, index_key),
        tuple(partitions),
        sum(known) if known else None,
        row.bytes + sum(part.bytes for part in partitions),
        row.is_readable,
        "" if share is None else share.condition,
        any(set(_all_named(each, by_number)) <= set(key) for each in row.unique),
        listed is None,
    )


def plan_of(column: CatalogColumn, book: TypeMap) -> ColumnPlan | None:
    plan = book.plan(
        column.name,
        column.type_oid,
        column.type_modifier,
        is_nullable=column.is_nullable,
        dimensions=column.dimensions,
        number=column.number,
    )
    return None if plan is None else with_missing(plan, column.missing)


def _name(numbers: Sequence[int] | None, names: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(names[number] for number in numbers or () if number in names)


def _all_named(numbers: Sequence[int], names: Mapping[int, str]) -> tuple[str, ...]:
    """Replaces expressions by a name that no column has."""
    return tuple(names.get(number, "") for number in numbers)


def _chosen_key(
    table: TableId,
    columns: Sequence[CatalogColumn],
    keys: Sequence[tuple[Pattern, tuple[str, ...]]],
) -> tuple[str, ...]:
    """Returns the key; raises `SourceRejected` if the file names a missing column."""
    for pattern, chosen in keys:
        if pattern.matches(str(table)):
            missing = set(chosen) - {each.name for each in columns if not each.is_generated}
            if missing:
                raise SourceRejected(
                    "the key chosen for a table has columns that it does not have",
                    columns=", ".join(sorted(missing)),
                    hint="correct `keys` of the source",
                )
            return chosen
    return ()


def _identity_columns(
    row: _Row,
    columns: Sequence[CatalogColumn],
    primary_key: tuple[str, ...],
    index_key: tuple[str, ...],
) -> tuple[str, ...]:
    match row.identity:
        case "d":
            return primary_key
        case "f":
            return tuple(column.name for column in columns if not column.is_generated)
        case "i":
            return index_key
        case _:
            return ()
