"""The numbers of columns in the stream, which contains only their names; names can be reused."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.connectors.postgres.catalog import MISSING, CapturedTable
from headwater.connectors.postgres.schema_history.table_definition import PREFIX, TableForm
from headwater.connectors.postgres.server.connection import in_our_words
from headwater.connectors.postgres.wal.wal_batch import Relation
from headwater.core_log.model.changes import Positions

if TYPE_CHECKING:
    from psycopg import AsyncConnection


COLUMNS = f"""
{MISSING}
SELECT attnum::int4, att.attname::text, atttypid::int8, att.xmin::text::int8, NOT attisdropped,
    missing.value
FROM pg_catalog.pg_attribute att
LEFT JOIN missing ON missing.root = att.attrelid AND missing.attname = att.attname
WHERE attrelid = ANY(%(oids)s) AND attnum > 0 AND attgenerated = ''
ORDER BY attnum
"""


class NumberedColumn(NamedTuple):
    """A column as in the present catalog; a dropped one keeps its row."""

    number: int
    name: str
    type_oid: int
    changed_in: int
    is_there: bool
    missing: str | None = None
    """The value of rows that are older than the column, as an array of one item."""


async def look(connection: "AsyncConnection[Any]", oid: int) -> list[NumberedColumn]:
    """Returns the columns; empty if the table is gone."""
    with in_our_words("the columns of a table cannot be looked up"):
        rows = await (await connection.execute(COLUMNS, {"oids": [oid]})).fetchall()
    return [NumberedColumn(*row) for row in rows]


def numbers_of(
    relation: Relation,
    then: TableForm | None,
    now: Sequence[NumberedColumn],
    *,
    is_whole: bool,
) -> tuple[int, ...]:
    """Returns the numbers of the relation's columns, in order; 0 if one is not certain. Returns
    nothing if none can be found.

    `then` is a schema from before the relation, `now` was looked up after it. `is_whole`: whether
    all columns but generated ones are published.
    """
    if then is None or then.oid != relation.oid or not now:
        return ()
    before = {each.number: each for each in then.attributes}
    unaltered = {
        each.name: each.number
        for each in now
        if each.is_there
        and (old := before.get(each.number)) is not None
        and (old.name, old.changed_in) == (each.name, each.changed_in)
    }
    by_name = tuple(unaltered.get(each.name, 0) for each in relation.columns)
    if all(by_name) or not is_whole:
        return by_name
    types = {each.number: {each.type_oid} for each in now}
    for old in then.attributes:
        types.setdefault(old.number, set()).add(old.type_oid)
    found, start = list(by_name), 0
    while start < len(found):
        end = start
        while end < len(found) and not by_name[end]:
            end += 1
        after = by_name[start - 1] if start else 0
        until = by_name[end] if end < len(found) else now[-1].number + 1
        between = _numbers_between(after, until, end - start, then, now)
        pairs = zip(relation.columns[start:end], between, strict=False)
        if all(column.type_oid in types[number] for column, number in pairs):
            found[start : start + len(between)] = between
        start = end + 1
    return tuple(found)


def _numbers_between(
    after: int, until: int, count: int, then: TableForm, now: Sequence[NumberedColumn]
) -> list[int]:
    """Returns the numbers of that many columns between two others, if no other columns can have
    been there: columns are streamed in the order of their numbers, and a number is used once.
    Else returns none."""
    before = {each.number for each in then.attributes}
    last = max(before, default=0)
    there = [each for each in now if after < each.number < until]
    kept = [each.number for each in there if each.is_there and each.number in before]
    dropped = [each.number for each in there if not each.is_there and each.number in before]
    added = [each for each in there if each.number > last]
    if count == len(kept):
        return kept
    if count == len(kept) + len(dropped) + len(added):
        return sorted([*kept, *dropped, *(each.number for each in added)])
    if not dropped and all(each.is_there for each in added) and count > len(kept):
        return [*kept, *(each.number for each in added[: count - len(kept)])]
    return []


class NamedColumn(NamedTuple):
    """A column as the stream names it."""

    name: str
    number: int | None
    """None if the catalog has none of this name and type any more."""


@dataclass(slots=True)
class ColumnNames:
    """Follows the names of columns in the stream. A look-up of the catalog misses a name that
    existed only between two look-ups, and under which rows were written."""

    _by_oid: dict[int, Sequence[NamedColumn]] = field(default_factory=dict)
    """The columns of each table in their order, which a rename does not change."""

    @classmethod
    def restore(cls, positions: Positions) -> "ColumnNames":
        forms = (
            TableForm.parse(text)[0] for part, text in positions.items() if part.startswith(PREFIX)
        )
        return cls(
            {
                form.oid: [
                    NamedColumn(each.name, each.number)
                    for each in form.attributes
                    if not each.is_generated
                ]
                for form in forms
            }
        )

    def differ(self, oid: int, names: Sequence[str]) -> bool:
        """Whether a former column is missing, or has another place."""
        before = [each.name for each in self._by_oid.get(oid, ())]
        return [name for name in before if name in names] != before or self._has_moved(oid, names)

    def saw(self, oid: int, columns: Sequence[NamedColumn]) -> None:
        """Stores the stream's names from here on."""
        self._by_oid[oid] = columns

    def why_read_again(self, oid: int, names: Sequence[str], table: CapturedTable) -> str:
        """Returns what happened to a missing column; empty if it was dropped. `table` is the
        present catalog, which is newer than the stream."""
        before = self._by_oid.get(oid, ())
        now = {column.name: column.number for column in table.columns}
        captured = {column.name for column in table.schema.columns}
        numbers = {column.number: column.name for column in table.columns}
        if self._has_moved(oid, names):
            return "names of columns changed places"
        is_new = bool(set(names) - {each.name for each in before})
        for column in before:
            if column.name in names:
                continue
            if column.name in captured:
                return f"the column {column.name} had another name for a while, or was replaced"
            if column.name in now:
                continue  # it is not published
            if numbers.get(column.number or 0) in captured:
                return f"the column {column.name} was renamed to {numbers[column.number or 0]}"
            if column.number is None and is_new:
                return f"the column {column.name} was dropped, or renamed"
        return ""

    def _has_moved(self, oid: int, names: Sequence[str]) -> bool:
        before = [each.name for each in self._by_oid.get(oid, ()) if each.name in names]
        return [name for name in names if name in before] != before
