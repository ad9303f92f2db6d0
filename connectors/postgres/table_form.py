"""What the catalogue says of a table's form, kept to find changes that the stream does not tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from connectors.postgres.catalog import CapturedTable
from connectors.postgres.connecting import in_our_words
from core_log.errors import DecodeError
from core_log.table_schema import TableId

if TYPE_CHECKING:
    from psycopg import AsyncConnection

PREFIX = "form/"
"""Before a table's name, the part of the position that holds its form."""
FORMAT_VERSION = 1
OTHER_KEY = "the key of the table was changed"

FORMS = """
WITH RECURSIVE tree AS (
    SELECT oid AS root, oid, NULL::xid AS attached, NULL::cid AS command
    FROM unnest(%(oids)s::oid[]) AS wanted(oid)
    UNION ALL
    SELECT tree.root, i.inhrelid, i.xmin, i.cmin
    FROM tree
    JOIN pg_catalog.pg_class parent ON parent.oid = tree.oid AND parent.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.root::int8, c.oid::int8, c.relkind::text, c.relpersistence::text,
       c.relfilenode::int8,
       tree.attached = made.xmin
           AND tree.command::text::int8 - made.cmin::text::int8 <= %(commands)s,
       (k.indkey::int2[])[0:k.indnkeyatts - 1], a.attributes
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(
               attnum, attname::text, atttypid::int8, atttypmod, att.xmin::text::int8,
               attmissingval::text, (
                   SELECT jsonb_object_agg(e.oid::text, e.enumlabel)
                   FROM pg_catalog.pg_enum e WHERE e.enumtypid = atttypid
               )
           ) ORDER BY attnum) AS attributes
    FROM pg_catalog.pg_attribute att
    WHERE attrelid = c.oid AND c.oid = tree.root AND attnum > 0 AND NOT attisdropped
) a ON true
LEFT JOIN pg_catalog.pg_attribute made ON made.attrelid = c.oid AND made.attnum = -1
ORDER BY tree.root, c.oid
"""
"""A row of `pg_attribute` has a new xmin once its column was altered. Rows of system columns keep
theirs: a partition that was made as one has them from the command that made it one."""
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
    """What rows have that are older than the column, as the server writes arrays."""
    labels: Mapping[str, str] | None
    """Of an enum, by their numbers."""


class Leaf(NamedTuple):
    """A table that holds rows itself."""

    filenode: int
    """Another one once all of it was written anew."""
    is_made_empty: bool
    """Whether it was made as a partition, and not attached with rows that nobody streamed."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """Of one captured table."""

    oid: int
    is_partitioned: bool
    persistence: str
    leaves: Mapping[int, Leaf]
    key: tuple[int, ...]
    """Its columns by their numbers."""
    has_primary_key: bool
    attributes: tuple[Attribute, ...]

    def text(self) -> str:
        return orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "oid": self.oid,
                "partitioned": self.is_partitioned,
                "persistence": self.persistence,
                "leaves": {str(oid): list(leaf) for oid, leaf in self.leaves.items()},
                "key": self.key,
                "primary": self.has_primary_key,
                "attributes": [list(each) for each in self.attributes],
            }
        ).decode()

    @classmethod
    def parse(cls, text: str) -> "TableForm":
        try:
            said = orjson.loads(text)
            if said["version"] > FORMAT_VERSION:
                raise DecodeError(
                    "the form of a table was written by a newer Headwater",
                    hint="upgrade Headwater here",
                )
            return cls(
                said["oid"],
                said["partitioned"],
                said["persistence"],
                {int(oid): Leaf(*leaf) for oid, leaf in said["leaves"].items()},
                tuple(said["key"]),
                said["primary"],
                tuple(Attribute(*each) for each in said["attributes"]),
            )
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
        cursor = await connection.execute(FORMS, {"oids": list(names), "commands": COMMANDS})
        rows = await cursor.fetchall()
    by_root: dict[int, list[Sequence[Any]]] = {}
    for row in rows:
        by_root.setdefault(row[0], []).append(row[1:])
    return {
        names[root].table: form
        for root, found in by_root.items()
        if (form := _form_of(root, found, names[root].schema.key)) is not None
    }


def _form_of(
    root: int, rows: Sequence[Sequence[Any]], chosen_key: Sequence[str]
) -> TableForm | None:
    """`chosen_key`: of a table without a primary key what else tells its rows apart."""
    own = next((row for row in rows if row[0] == root), None)
    if own is None:
        return None
    _, kind, persistence, _, _, key, attributes = own
    leaves = {
        oid: Leaf(file, bool(is_made)) for oid, each, _, file, is_made, *_ in rows if each == "r"
    }
    columns = tuple(Attribute(*each) for each in attributes or ())
    numbers = {each.name: each.number for each in columns}
    chosen = key or [numbers[name] for name in chosen_key if name in numbers]
    return TableForm(root, kind == "p", persistence, leaves, tuple(chosen), bool(key), columns)


def why_read_again(then: TableForm, now: TableForm) -> str:
    """What has become of the table that its stream does not bring; empty where it brings all."""
    if then.oid != now.oid:
        return ""  # another table, which is read in any case
    if _has_other_key(then, now):
        return OTHER_KEY if now.key else ""
    return _leaves_differ(then, now) or _attributes_differ(then, now)


def _has_other_key(then: TableForm, now: TableForm) -> bool:
    """What the file chooses is an edit of it, and no change of the table."""
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
    if _is_rewritten(then, now):
        return "a partition was truncated or rewritten"
    return ""


def _attributes_differ(then: TableForm, now: TableForm) -> str:
    before = {each.number: each for each in then.attributes}
    names_before = {each.name for each in then.attributes}
    is_rewritten = _is_rewritten(then, now)
    for column in now.attributes:
        old = before.get(column.number)
        if old is None:
            if column.name in names_before:
                return f"the column {column.name} was dropped and another one of its name added"
            if is_rewritten or column.missing is not None:
                return f"the column {column.name} was added with values in the rows that were there"
            continue
        if old.name != column.name:
            return f"the column {old.name} was renamed to {column.name}"
        if is_rewritten and old.changed_in != column.changed_in:
            return f"the column {column.name} was altered and the table rewritten"
        if old.type_oid != column.type_oid and {old.type_oid, column.type_oid} - TEXTS:
            return f"the type of the column {column.name} was changed"
        if _has_other_labels(old, column):
            return f"a label of the enum column {column.name} was renamed"
    return ""


TEXTS = {25, 1043}
"""`text` and `varchar`: one becomes the other without another value."""


def _is_rewritten(then: TableForm, now: TableForm) -> bool:
    both = then.leaves.keys() & now.leaves.keys()
    return any(then.leaves[oid].filenode != now.leaves[oid].filenode for oid in both)


def _has_other_labels(then: Attribute, now: Attribute) -> bool:
    if then.labels is None or now.labels is None:
        return False
    return any(now.labels.get(oid, label) != label for oid, label in then.labels.items())
