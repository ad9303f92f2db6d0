"""The form of a table in the catalog, stored to find changes that are not in the stream."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.schema_history import enum_labels
from headwater.connectors.postgres.schema_history.enum_labels import (
    EnumLabel,
    labels_of,
    may_have_changed,
)
from headwater.connectors.postgres.server.connection import in_our_words
from headwater.connectors.schema_changes import (
    ADD_COLUMN,
    CHANGE_KEY,
    CHANGE_ROWS,
    CHANGE_TYPE,
    RENAMED,
    WIDEN_TYPE,
)
from headwater.core_log.foundation.errors import DecodeError, check_format
from headwater.core_log.model.table_schema import TableId

if TYPE_CHECKING:
    from psycopg import AsyncConnection

PREFIX = "form/"
"""Before a table's name, the part of the position that holds its form."""
FORMAT_VERSION = 1
OTHER_KEY = "the key of the table was changed"
LOST_KEY = "the table has lost its key"
RENAMED_LABEL = "a label of an enum was renamed after rows had it"
SAID_MAX = 3
"""Causes that are said of one reading."""

FORMS = """
WITH RECURSIVE tree AS (
    SELECT oid AS root, oid, '{}'::int8[] AS attached, true AS is_made
    FROM unnest(%(oids)s::oid[]) AS wanted(oid)
    UNION ALL
    SELECT tree.root, i.inhrelid, tree.attached || i.xmin::text::int8,
           tree.is_made AND i.xmin = made.xmin
               AND i.cmin::text::int8 - made.cmin::text::int8 <= %(commands)s
    FROM tree
    JOIN pg_catalog.pg_class parent ON parent.oid = tree.oid AND parent.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
    JOIN pg_catalog.pg_attribute made ON made.attrelid = i.inhrelid AND made.attnum = -1
),
missing AS MATERIALIZED (
    SELECT tree.root, att.attname,
        string_agg(DISTINCT att.attmissingval::text, '') AS value
    FROM tree JOIN pg_catalog.pg_attribute att ON att.attrelid = tree.oid AND att.atthasmissing
    GROUP BY 1, 2
)
SELECT tree.root::int8, c.oid::int8, c.relkind::text, c.relpersistence::text,
       NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel WHERE prrelid = c.oid),
       c.relfilenode::int8, tree.is_made, tree.attached,
       (k.indkey::int2[])[0:k.indnkeyatts - 1], a.attributes,
       pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(
               attnum, att.attname::text, atttypid::int8, atttypmod, att.xmin::text::int8,
               missing.value, attgenerated <> '', CASE WHEN atttypid >= 16384 THEN ({parts}) END
           ) ORDER BY attnum) AS attributes
    FROM pg_catalog.pg_attribute att
    LEFT JOIN missing ON missing.root = att.attrelid AND missing.attname = att.attname
    WHERE attrelid = c.oid AND c.oid = tree.root AND attnum > 0 AND NOT attisdropped
) a ON true
ORDER BY tree.root, c.oid
"""
"""A row of `pg_attribute` has a new xmin once its column was altered. Rows of system columns keep
theirs: a partition that was made as one has them from the command that made it one."""
PARTS = """
WITH RECURSIVE types AS (
    SELECT atttypid AS type
    UNION
    SELECT part.type
    FROM types
    JOIN pg_catalog.pg_type t ON t.oid = types.type
    CROSS JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = t.oid
        UNION ALL SELECT rngtypid FROM pg_catalog.pg_range WHERE rngmultitypid = t.oid
        UNION ALL SELECT field.atttypid FROM pg_catalog.pg_attribute field
            WHERE field.attrelid = t.typrelid AND field.attnum > 0
    ) part(type)
    WHERE part.type >= 16384
)
SELECT jsonb_build_array(
    jsonb_object_agg(part, said), jsonb_object_agg(part, since),
    EXISTS (SELECT FROM types JOIN pg_catalog.pg_type t ON t.oid = types.type
        WHERE t.typtype IN ('c', 'r', 'm'))
) FROM (
    SELECT e.oid::text, e.enumlabel::text, jsonb_build_array(e.xmin::text::int8)
    FROM types JOIN pg_catalog.pg_enum e ON e.enumtypid = types.type
    UNION ALL
    SELECT t.oid::text, string_agg(format('%%s %%s', field.attnum, field.atttypid), ', '
        ORDER BY field.attnum) FILTER (WHERE NOT field.attisdropped),
        jsonb_build_array(max(field.attnum)) || jsonb_agg(DISTINCT field.xmin::text::int8)
    FROM types
    JOIN pg_catalog.pg_type t ON t.oid = types.type AND t.typrelid <> 0
    JOIN pg_catalog.pg_attribute field ON field.attrelid = t.typrelid AND field.attnum > 0
    GROUP BY t.oid
    HAVING bool_or(NOT field.attisdropped)
) parts(part, said, since)
"""
"""Labels and fields of all types that a column's type is made of; those of the server have none."""
QUESTION = FORMS.replace("{parts}", PARTS)
COMMANDS = 3
"""The server counts so many commands for one CREATE TABLE ... PARTITION OF; one that makes a table,
fills and attaches it counts more."""


class Attribute(NamedTuple):
    """A column, by the number that it keeps for ever."""

    number: int
    name: str
    type_oid: int
    type_modifier: int
    changed_in: int
    """The transaction that altered it last, of those that the catalogue shows."""
    missing: str | None
    """The value in rows that are older than the column, as an array of one; several arrays if
    partitions differ."""
    is_generated: bool
    parts: Mapping[str, str] | None
    """The parts of the type: labels of enums, and fields of composite types, by their numbers."""
    since: Mapping[str, Sequence[int]] | None = None
    """By the same numbers: the transaction that gave a label its name; for a composite type the
    count of fields that it ever had, and their transactions. None if an older version stored
    it."""
    is_nested: bool = False
    """Whether a value is written as several: of a composite type, or a range."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Attribute":
        number, name, type_oid, modifier, changed_in, missing, is_generated, made = row
        parts, since, is_nested = made or (None, None, False)
        return cls(
            number,
            name,
            type_oid,
            modifier,
            changed_in,
            missing,
            is_generated,
            parts,
            since,
            is_nested,
        )


class LeafForm(NamedTuple):
    """A table that holds rows itself."""

    filenode: int
    """Changes when the table is rewritten."""
    is_made_empty: bool
    """Whether it was made as a partition, and not attached with rows that nobody streamed."""
    attached_in: Sequence[int]
    """The transactions that made it, and those above it, partitions."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of one captured table."""

    oid: int
    is_partitioned: bool
    persistence: str
    may_be_unlogged: bool
    """The server refuses it only of tables that are published by their names."""
    leaves: Mapping[int, LeafForm]
    key: tuple[int, ...]
    """Its columns by their numbers."""
    has_primary_key: bool
    attributes: tuple[Attribute, ...]
    labels: Mapping[str, EnumLabel] = field(default_factory=dict, compare=False)
    """Labels of rows in the log that are newer than this form, by their numbers."""
    horizon: int = field(default=0, compare=False)
    """All transactions below had ended when it was looked up; 0 if that is not known."""

    def text(self, at: int) -> str:
        """`at`: where the write-ahead log ended after it was looked up."""
        return orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "at": at,
                "oid": self.oid,
                "partitioned": self.is_partitioned,
                "persistence": self.persistence,
                "may be unlogged": self.may_be_unlogged,
                "leaves": {str(oid): list(leaf) for oid, leaf in self.leaves.items()},
                "key": self.key,
                "primary": self.has_primary_key,
                "attributes": [list(each) for each in self.attributes],
                "labels": {oid: list(label) for oid, label in self.labels.items()},
                "horizon": self.horizon,
            }
        ).decode()

    @classmethod
    def parse(cls, text: str) -> tuple["TableForm", int | None]:
        """Returns the form, and the position that was stored with it, if any."""
        try:
            said = orjson.loads(text)
            check_format(said["version"], FORMAT_VERSION, "the form of a table was written")
            form = cls(
                said["oid"],
                said["partitioned"],
                said["persistence"],
                said["may be unlogged"],
                {int(oid): LeafForm(*leaf) for oid, leaf in said["leaves"].items()},
                tuple(said["key"]),
                said["primary"],
                tuple(Attribute(*each) for each in said["attributes"]),
                {oid: EnumLabel(*label) for oid, label in said.get("labels", {}).items()},
                said.get("horizon", 0),
            )
            return form, said.get("at")
        except (KeyError, ValueError, TypeError):
            raise DecodeError("a part of the position is none of a table's form") from None


def part_of(table: TableId) -> str:
    return f"{PREFIX}{table}"


async def look(
    connection: "AsyncConnection[Any]", tables: Sequence[CapturedTable]
) -> dict[TableId, TableForm]:
    """One question for any number of tables; those that are gone are left out."""
    names = {each.oid: each for each in tables}
    with in_our_words("the forms of the tables cannot be looked up"):
        cursor = await connection.execute(QUESTION, {"oids": list(names), "commands": COMMANDS})
        rows = await cursor.fetchall()
    by_root: dict[int, list[Sequence[Any]]] = {}
    for row in rows:
        by_root.setdefault(row[0], []).append(row[1:])
    return {
        names[root].table: form
        for root, found in by_root.items()
        if (form := _form_of(root, found, _chosen_key(names[root]))) is not None
    }


def _chosen_key(table: CapturedTable) -> Sequence[str]:
    return () if table.primary_key else table.schema.key


def _form_of(
    root: int, rows: Sequence[Sequence[Any]], chosen_key: Sequence[str]
) -> TableForm | None:
    """`chosen_key`: of a table without a primary key what else tells its rows apart."""
    own = next((row for row in rows if row[0] == root), None)
    if own is None:
        return None
    _, kind, persistence, may_be_unlogged, *_, key, attributes, horizon = own
    leaves = {oid: LeafForm(*leaf) for oid, each, _, _, *leaf, _, _, _ in rows if each == "r"}
    columns = tuple(Attribute.of(each) for each in attributes or ())
    numbers = {each.name: each.number for each in columns}
    chosen = key or [numbers[name] for name in chosen_key if name in numbers]
    return TableForm(
        root,
        kind == "p",
        persistence,
        may_be_unlogged,
        leaves,
        tuple(chosen),
        bool(key),
        columns,
        horizon=horizon,
    )


class Cause(NamedTuple):
    """Something that has become of a table, and that its stream does not bring."""

    why: str
    kinds: tuple[str, ...]
    """Those of `headwater.connectors.schema_changes`."""
    is_in_place: bool = False
    """The ids of the columns, and the values of older rows, tell all of it."""
    added: tuple[int, ...] = ()
    """Numbers of columns that were added with a value in older rows."""
    renamed: tuple[str, ...] = ()
    """New names of columns that were renamed."""


def why_read_again(then: TableForm, now: TableForm, *, is_announced: bool = True) -> Cause:
    """Returns what has become of the table that its stream does not bring; an empty text if it
    brings all. `is_announced`: the log has all columns of `then`."""
    return merge_causes([*_causes(then, now, is_announced=is_announced)])


def merge_causes(causes: Sequence[Cause]) -> Cause:
    """The first few in words, and the kinds of all."""
    more = f"; and {len(causes) - SAID_MAX} more" if len(causes) > SAID_MAX else ""
    kinds = dict.fromkeys(kind for each in causes for kind in each.kinds)
    return Cause(
        "; ".join(each.why for each in causes[:SAID_MAX]) + more,
        tuple(kinds),
        bool(causes) and all(each.is_in_place for each in causes),
        tuple(number for each in causes for number in each.added),
        tuple(name for each in causes for name in each.renamed),
    )


def _causes(then: TableForm, now: TableForm, *, is_announced: bool) -> Iterator[Cause]:
    if then.oid != now.oid:
        return  # another table, which is read in any case
    if then.key and not now.key:
        yield Cause(LOST_KEY, (CHANGE_KEY,))
        return
    if _has_other_key(then, now):
        yield Cause(OTHER_KEY, (CHANGE_KEY,))
        return
    if why := _leaves_differ(then, now):
        yield Cause(why, (CHANGE_ROWS,))
    of_columns = [*_attribute_causes(then, now)]
    if not is_announced:
        of_columns += _lost_values(then, now)
    yield from of_columns
    if enum_labels.differ(then.labels, labels_of(now.attributes)):
        yield Cause(RENAMED_LABEL, (CHANGE_TYPE,))
    if not (why or of_columns) and _may_have_been_unlogged(then, now):
        yield Cause("it may have been unlogged", (CHANGE_ROWS,))


def _has_other_key(then: TableForm, now: TableForm) -> bool:
    """Returns whether the table's own key is another one. A key that the file chooses is an edit of
    the file."""
    is_chosen = not (then.has_primary_key or now.has_primary_key)
    if is_chosen and then.key != now.key:
        return False
    return _key_of(then) != _key_of(now)


def _key_of(form: TableForm) -> list[tuple[str, int]]:
    columns = {each.number: (each.name, each.type_oid) for each in form.attributes}
    return [columns[number] for number in form.key]


def _leaves_differ(then: TableForm, now: TableForm) -> str:
    if not now.is_partitioned:
        return ""
    if then.leaves.keys() - now.leaves.keys():
        return "a partition was detached or dropped"
    if any(not now.leaves[oid].is_made_empty for oid in now.leaves.keys() - then.leaves.keys()):
        return "a partition was attached"
    both = then.leaves.keys() & now.leaves.keys()
    if any(then.leaves[oid].attached_in != now.leaves[oid].attached_in for oid in both):
        return "a partition was detached and attached again"
    if _is_rewritten(then, now):
        return "a partition was truncated or rewritten"
    return ""


def _attribute_causes(then: TableForm, now: TableForm) -> Iterator[Cause]:
    """Generated columns are not captured, and so may change."""
    before = {each.number: each for each in then.attributes}
    names_before = {each.name for each in then.attributes}
    is_rewritten = _is_rewritten(then, now)
    for column in now.attributes:
        if column.is_generated:
            continue
        if (old := before.get(column.number)) is not None:
            if old.name != column.name:
                why = f"the column {old.name} was renamed to {column.name}"
                yield Cause(why, RENAMED, is_in_place=True, renamed=(column.name,))
            if (cause := _attribute_cause(old, column, is_rewritten=is_rewritten)) is not None:
                yield cause
        elif column.name in names_before:
            why = f"the column {column.name} was dropped and another one of its name added"
            yield Cause(why, RENAMED)
        elif is_rewritten or column.missing is not None:
            why = f"the column {column.name} was added with values in the rows that were there"
            added = (column.number,)
            yield Cause(why, (ADD_COLUMN,), is_in_place=not is_rewritten, added=added)
        elif column.is_nested and may_have_changed((column.since or {}).values(), then.horizon):
            why = f"the type of the column {column.name}, which was added, may have been changed"
            yield Cause(why, (CHANGE_TYPE,))


def _lost_values(then: TableForm, now: TableForm) -> Iterator[Cause]:
    """Yields columns whose values in older rows the catalog no longer has, and the log not yet."""
    there = {each.number: each for each in now.attributes}
    for column in then.attributes:
        if column.missing is None or column.number not in there:
            continue
        if there[column.number].missing != column.missing:
            yield Cause(
                f"the column {column.name} was added, and the table rewritten", (ADD_COLUMN,)
            )


def _attribute_cause(then: Attribute, now: Attribute, *, is_rewritten: bool) -> Cause | None:
    is_altered = is_rewritten and then.changed_in != now.changed_in
    kind = WIDEN_TYPE if _is_wider(then, now) else CHANGE_TYPE
    if is_altered:
        return Cause(f"the column {now.name} was altered and the table rewritten", (kind,))
    if then.type_oid != now.type_oid and {then.type_oid, now.type_oid} - TEXTS:
        return Cause(f"the type of the column {now.name} was changed", (kind,))
    if then.is_generated:
        return Cause(f"the column {now.name} is no longer generated", (ADD_COLUMN,))
    if _has_other_parts(then, now):
        why = f"the type of the column {now.name} has other labels or fields"
        return Cause(why, (CHANGE_TYPE,))
    return None


def _is_wider(then: Attribute, now: Attribute) -> bool:
    """Whether each value of before fits into the new type, as far as types tell."""
    if then.type_oid != now.type_oid:
        if now.type_oid == NUMERIC and now.type_modifier >= 0:
            digits, scale = _digits(now)
            return digits - scale >= INTEGER_DIGITS.get(then.type_oid, digits + 1)
        return now.type_oid in WIDER.get(then.type_oid, ())
    if then.type_modifier == now.type_modifier:
        return False
    if now.type_oid == NUMERIC and min(then.type_modifier, now.type_modifier) >= 0:
        (before, scale_before), (after, scale) = map(_digits, (then, now))
        return scale >= scale_before and after - scale >= before - scale_before
    return now.type_modifier < 0 or 0 <= then.type_modifier < now.type_modifier


def _digits(column: Attribute) -> tuple[int, int]:
    return (column.type_modifier - 4) >> 16, (column.type_modifier - 4) & 0x7FF


INT2, INT4, INT8, FLOAT4, FLOAT8, NUMERIC = 21, 23, 20, 700, 701, 1700
WIDER = {
    INT2: (INT4, INT8, FLOAT4, FLOAT8, NUMERIC),
    INT4: (INT8, FLOAT8, NUMERIC),
    INT8: (NUMERIC,),
    FLOAT4: (FLOAT8,),
}
INTEGER_DIGITS = {INT2: 5, INT4: 10, INT8: 19}
TEXTS = {25, 1043}
"""`text` and `varchar`: one becomes the other without another value."""


def _is_rewritten(then: TableForm, now: TableForm) -> bool:
    both = then.leaves.keys() & now.leaves.keys()
    return any(then.leaves[oid].filenode != now.leaves[oid].filenode for oid in both)


def _may_have_been_unlogged(then: TableForm, now: TableForm) -> bool:
    """For a while, in which the stream had none of its changes. VACUUM FULL looks the same."""
    return (then.may_be_unlogged or now.may_be_unlogged) and _is_rewritten(then, now)


def _has_other_parts(then: Attribute, now: Attribute) -> bool:
    """A label more leaves the values as they were, but values that are written as several may have
    had it under another name."""
    before, after = then.parts or {}, now.parts or {}
    if any(after.get(oid, part) != part for oid, part in before.items()):
        return True
    if now.is_nested and after.keys() - before.keys():
        return True
    since = now.since or {}
    return any(old[0] != since[oid][0] for oid, old in (then.since or {}).items() if oid in since)
