"""Fills values that the server did not send with updates, because they are large and unchanged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.events.change_mapper import fill_from_old
from headwater.connectors.postgres.events.lookup import LookupConnection
from headwater.connectors.postgres.publication.replica_identity import identity_cure
from headwater.connectors.postgres.server.connection import in_our_words
from headwater.connectors.postgres.snapshot.copy import decode_tuples, tuples_of_messages
from headwater.connectors.postgres.wal.kernels import Kernels
from headwater.connectors.postgres.wal.wal_batch import INSERT, NO_OLD, Relation, RowChanges
from headwater.connectors.source import Gauge
from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import SourceRejected

QUESTION_BYTES = 16 << 20
"""Bytes of large values per query, so that they are never all in memory."""
ROWS_FIRST, ROWS_MAX = 50, 2_000
GONE = "updates_of_gone_rows"
"""Number of updates without a value because their rows are gone: deletes follow."""
TRIES = 3
"""A table that changes between two queries is looked up again."""


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table with its present names, which may differ from those in the stream."""

    table: sql.Composable
    names: Mapping[int, str]
    """By the column's index in the relation; dropped columns are missing."""
    types: Mapping[int, str]
    """The types of the key's columns, as SQL."""
    schemas: Mapping[int, str]
    """Schemas of the comparison operators, so that the search path does not matter."""


@dataclass(frozen=True, slots=True)
class LookedUpValues:
    """Present values of rows."""

    values: Mapping[int, pa.StringArray]
    """By the column's index in the relation; dropped columns are missing."""
    keys: Int64Array
    """The requested key of each row; a deleted row is missing."""
    has_unreadable: bool


class ToastFiller:
    """Reads rows again by their keys. The values are the newest ones: exact for the present, and
    possibly newer than the change for a past state of this column."""

    def __init__(
        self,
        questions: LookupConnection,
        kernels: Kernels,
        report: Callable[[Gauge], None],
        *,
        has_placeholders: bool,
    ) -> None:
        self._questions, self._kernels = questions, kernels
        self._report, self._has_placeholders = report, has_placeholders
        self._targets: dict[int, tuple[Relation, LookupTable]] = {}
        """Look-ups for one schema of a table are not valid for its next one."""
        self._rows_each = ROWS_FIRST
        self._gone = 0

    def pieces(self, part: RowChanges, capture: CapturedRelation) -> Iterator[RowChanges]:
        """Yields the changes in as many pieces as memory requires. Each is filled before the next
        one is taken, because its size decides about the next."""
        part = _captured_only(fill_from_old(part), capture)
        if not part.unchanged or self._has_placeholders:
            yield part
            return
        has_hole: BoolArray = np.logical_or.reduce(list(part.unchanged.values()))
        holes, start = np.flatnonzero(has_hole), 0
        while start < len(part):
            beyond = holes[holes >= start][self._rows_each :]
            end = int(beyond[0]) if len(beyond) else len(part)
            yield part.slice(start, end)
            start = end

    async def fill(self, part: RowChanges, capture: CapturedRelation) -> RowChanges:
        if not part.unchanged:
            return part
        if self._has_placeholders:
            return replace(part, unchanged={}, placeholders=part.unchanged)
        has_hole: BoolArray = np.logical_or.reduce(list(part.unchanged.values()))
        wanted = pa.array(np.flatnonzero(has_hole))
        places = sorted(part.unchanged)
        keys = {place: part.rows[place].take(wanted) for place in capture.key_places}
        read = await self._read(part, capture, keys, places)
        found = read.values
        is_there = np.zeros(len(part), np.bool_)
        picks = np.zeros(len(part), np.int64)
        rows_found = wanted.to_numpy()[read.keys]
        is_there[rows_found], picks[rows_found] = True, np.arange(len(rows_found))
        rows, left, refilled = list(part.rows), dict[int, BoolArray](), dict[int, BoolArray]()
        unavailable = dict[int, BoolArray]()
        for place in places:
            mask = part.unchanged[place]
            if place in found:
                values = found[place].take(pa.array(picks, mask=~is_there))
                rows[place] = pc.if_else(pa.array(mask & is_there), values, rows[place])
                refilled[place] = mask & is_there
            elif (mask & is_there).any():  # a dropped column of an existing row
                unavailable[place] = mask & is_there
            lost = mask & ~is_there
            if lost.any():
                left[place] = lost
        if left:
            self._gone += int(np.logical_or.reduce(list(left.values())).sum())
            self._report(Gauge(GONE, self._gone))
        refilled = {place: mask for place, mask in refilled.items() if mask.any()}
        return replace(
            part,
            rows=tuple(rows),
            unchanged=left,
            has_unreadable=part.has_unreadable or read.has_unreadable,
            reselected=refilled,
            unavailable=unavailable,
        )

    async def rows(
        self, part: RowChanges, capture: CapturedRelation, keys: Sequence[tuple[str | None, ...]]
    ) -> tuple[list[RowChanges], dict[tuple[str | None, ...], int]]:
        """Returns rows as they are now, and the index of each key's row; without deleted rows."""
        found, places = list[RowChanges](), dict[tuple[str | None, ...], int]()
        start, count = 0, 0
        while start < len(keys):
            asked = keys[start : start + self._rows_each]
            start += len(asked)
            columns = {
                place: pa.array([key[number] for key in asked], pa.string())
                for number, place in enumerate(capture.key_places)
            }
            read = await self._read(part, capture, columns, capture.places)
            places |= {asked[at]: count + row for row, at in enumerate(read.keys.tolist())}
            count += len(read.keys)
            found.append(_of_read(read, part.relation, capture))
        return found, places

    async def _read(
        self,
        part: RowChanges,
        capture: CapturedRelation,
        keys: Mapping[int, pa.StringArray],
        places: Sequence[int],
    ) -> LookedUpValues:
        doing = "rows cannot be read anew for values that the stream left out"
        oid = part.relation.oid
        with in_our_words(doing, table=str(capture.schema.table)):
            for attempt in range(TRIES):
                target = self._find_known(part.relation) or await self._look(part, capture)
                if target is None:
                    return LookedUpValues({}, np.empty(0, np.int64), False)
                self._targets[oid] = part.relation, target
                asked = [place for place in places if place in target.names]
                try:
                    messages = await self._copy(_question(target, capture, keys, asked))
                except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable):
                    del self._targets[oid]
                    if attempt == TRIES - 1:
                        raise
                    continue
                except psycopg.errors.UndefinedFunction:  # its type has no comparison any more
                    raise _of_another_key(capture) from None
                tuples = tuples_of_messages(messages)
                bytes_each = max(1, tuples.size // max(1, len(tuples.starts)))
                self._rows_each = min(max(1, QUESTION_BYTES // bytes_each), ROWS_MAX)
                copied = decode_tuples(tuples, [True] * (1 + len(asked)), self._kernels)
                number, *columns = copied.columns
                at = number.cast(pa.int64()).to_numpy(zero_copy_only=False) - 1
                return LookedUpValues(
                    dict(zip(asked, columns, strict=True)), at, copied.has_unreadable
                )
        raise AssertionError("the last attempt returns or raises")

    def _find_known(self, relation: Relation) -> LookupTable | None:
        known = self._targets.get(relation.oid)
        return None if known is None or known[0] != relation else known[1]

    async def _copy(self, question: sql.Composed) -> list[bytes]:
        connection = await self._questions.connection()
        async with connection.cursor() as cursor, cursor.copy(question) as copy:
            return [bytes(message) async for message in copy]

    async def _look(self, part: RowChanges, capture: CapturedRelation) -> LookupTable | None:
        """Returns the table; None if it was dropped. A renamed column is found by its number."""
        relation = part.relation
        connection = await self._questions.connection()
        cursor = await connection.execute(LOOK, [relation.oid])
        rows = await cursor.fetchall()
        if not rows:
            return None
        columns = [_Column(*row[3:]) for row in rows if row[3] is not None]
        now = _names_now(capture, columns)
        columns = [each for each in columns if each.is_there]
        now |= _renamed_key(capture, now, columns)
        if any(place not in now for place in capture.key_places):
            raise _of_another_key(capture)
        types, schemas = {}, {}
        for place in capture.key_places:
            column = relation.columns[place]
            asked = await connection.execute(TYPE, [column.type_oid] * 2 + [column.type_modifier])
            [[types[place], schemas[place]]] = await asked.fetchall()
        namespace, name, is_whole, *_ = rows[0]
        table: sql.Composable = sql.Identifier(namespace, name)
        if is_whole:
            table = sql.SQL("ONLY {}").format(table)
        return LookupTable(table, now, types, schemas)


LOOK = """
SELECT n.nspname, c.relname, c.relkind = 'r', a.attname, a.atttypid::int8,
    coalesce(a.attnum = ANY ((k.indkey::int2[])[0:k.indnkeyatts - 1]), false),
    a.attnum::int4, NOT a.attisdropped
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a
    ON a.attrelid = c.oid AND a.attnum > 0 AND a.attgenerated = ''
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
WHERE c.oid = %s ORDER BY a.attnum
"""

TYPE = """
WITH RECURSIVE made_of AS (
    SELECT oid, typbasetype, typnamespace FROM pg_catalog.pg_type WHERE oid = %s
    UNION ALL
    SELECT t.oid, t.typbasetype, t.typnamespace FROM made_of
    JOIN pg_catalog.pg_type t ON t.oid = made_of.typbasetype
)
SELECT pg_catalog.format_type(%s, %s), coalesce(max(n.nspname), 'pg_catalog')
FROM made_of
JOIN pg_catalog.pg_operator o ON o.oprname = '=' AND o.oprnamespace = made_of.typnamespace
    AND o.oprleft = made_of.oid AND o.oprright = made_of.oid
JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
"""
"""Enums, arrays and ranges share an operator, and `varchar` uses that of `text`."""


class _Column(NamedTuple):
    """The present state of a column."""

    name: str
    type_oid: int
    is_of_primary_key: bool
    number: int
    is_there: bool
    """False once it was dropped: its number stays."""


def _renamed_key(
    capture: CapturedRelation, now: Mapping[int, str], columns: Sequence[_Column]
) -> dict[int, str]:
    """Returns a renamed key column of a table that has changed otherwise as well: the one of the
    primary key that did not exist."""
    relation = capture.relation
    missing = [place for place in capture.key_places if place not in now]
    others = [each for each in columns if each.is_of_primary_key and each.name not in now.values()]
    if len(missing) != 1 or len(others) != 1:
        return {}
    is_same = relation.columns[missing[0]].type_oid == others[0].type_oid
    return {missing[0]: others[0].name} if is_same else {}


def _of_another_key(capture: CapturedRelation) -> SourceRejected:
    return SourceRejected(
        "rows cannot be read anew, since their key has another form by now",
        table=str(capture.schema.table),
        columns=", ".join(capture.schema.key),
        hint="take the table out of `tables` for one run: it is read again after that;"
        f" {identity_cure([capture.schema.table])} has the server send such values",
    )


def _names_now(capture: CapturedRelation, columns: Sequence[_Column]) -> dict[int, str]:
    """Returns the present names of the relation's columns by index, without columns that are
    dropped or may be. They are found by number; without numbers by index if the table has never
    had others; else by name and type, since a column of another name may be another one."""
    relation = capture.relation
    by_number = {each.number: each for each in columns}
    by_name = {(each.name, each.type_oid): each for each in columns if each.is_there}
    has_kept_places = len(columns) == len(relation.columns) and all(
        each.is_there for each in columns
    )
    now = {}
    numbers = capture.numbers or (None,) * len(relation.columns)
    for place, (column, number) in enumerate(zip(relation.columns, numbers, strict=True)):
        if number is not None:
            found = by_number.get(number)
        elif has_kept_places:
            found = columns[place]
        else:
            found = by_name.get((column.name, column.type_oid))
        if found is not None and found.is_there:
            now[place] = found.name
    return now


def _question(
    target: LookupTable,
    capture: CapturedRelation,
    keys: Mapping[int, pa.StringArray],
    asked: Sequence[int],
) -> sql.Composed:
    """Returns the query. Keys are sent as text and cast on the server, so that indexes are used."""
    lists = [sql.SQL("{}::text[]").format(sql.Literal(_array_text(each))) for each in keys.values()]
    names = [sql.Identifier(f"k{place}") for place in keys]
    matches = [
        sql.SQL("t.{} OPERATOR({}.=) k.{}::{}").format(
            sql.Identifier(target.names[place]),
            sql.Identifier(target.schemas[place]),
            name,
            sql.SQL(target.types[place]),
        )
        for place, name in zip(keys, names, strict=True)
    ]
    columns = [
        sql.SQL(plan.asked_as_text).format(sql.Identifier("t", target.names[place]))
        for place in asked
        if (plan := capture.plan_at(place)) is not None
    ]
    return sql.SQL(
        "COPY (SELECT {} FROM unnest({}) WITH ORDINALITY AS k({}, n) JOIN {} t ON {})"
        " TO STDOUT (FORMAT binary)"
    ).format(
        sql.SQL(", ").join([sql.SQL("k.n::text"), *columns]),
        sql.SQL(", ").join(lists),
        sql.SQL(", ").join(names),
        target.table,
        sql.SQL(" AND ").join(matches),
    )


def _array_text(values: pa.StringArray) -> str:
    """Returns `{"a","b"}`, PostgreSQL's form of arrays."""
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), escaped)
    joined = pc.binary_join(whole, '","')[0].as_py()
    return f'{{"{joined}"}}'


def _of_read(read: LookedUpValues, relation: Relation, capture: CapturedRelation) -> RowChanges:
    """Returns all rows that were read, as if they were inserted."""
    count, zeros = len(read.keys), np.zeros(len(read.keys), np.int64)
    nulls = pa.nulls(count, pa.string())
    others = set(read.values) - set(capture.key_places)
    gone = set(capture.places) - set(read.values)
    every = np.ones(count, np.bool_)
    return RowChanges(
        relation,
        np.full(count, INSERT, np.uint8),
        tuple(read.values.get(place, nulls) for place in range(len(relation.columns))),
        {},
        None,
        np.full(count, NO_OLD, np.uint8),
        zeros,
        zeros,
        zeros,
        read.has_unreadable,
        reselected=dict.fromkeys(others, every),
        unavailable=dict.fromkeys(gone, every),
    )


def _captured_only(part: RowChanges, capture: CapturedRelation) -> RowChanges:
    if not part.unchanged:
        return part
    kept = {place: mask for place, mask in part.unchanged.items() if place in capture.places}
    return replace(part, unchanged=kept)
