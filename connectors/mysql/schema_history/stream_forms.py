"""The forms in which the stream has tables, be they neither the stored nor the present ones."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.connectors.mysql.binlog.rows import RowsLayout
from headwater.connectors.mysql.binlog.table_map import TableMap, WireColumn
from headwater.connectors.mysql.server.catalog import MysqlTable, table_of
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.connectors.mysql.types.column_definition import (
    ColumnDefinition,
    definition_from_log,
    is_logged_as,
)
from headwater.connectors.schema_changes import (
    ADD_COLUMN,
    CHANGE_KEY,
    CHANGE_ROWS,
    CHANGE_TYPE,
    DROP_COLUMN,
    WIDEN_TYPE,
)
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)

FITS_MAX = 10_000
KNOWN_MAX = 100
"""Forms that are remembered of a table."""
NOT_WHOLE = "rows were logged without all of their columns (binlog_row_image)"
OTHER_FORM = "its rows were logged in another form"
NO_NAMES = "the log names no columns (binlog_row_metadata was not FULL)"
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
LENGTHS = (
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"},
    {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"},
)
"""Types of which the longer one holds the values of the shorter one."""
FRACTIONS = {"time", "datetime", "timestamp"}


class Fit(NamedTuple):
    """In which form rows can be read; and why their table has to be looked at, or ''."""

    form: MysqlTable | None
    why: str = ""


@dataclass(slots=True)
class StreamForms:
    """`of` tells the form of a row event; a form that the log does not prove is none."""

    charsets: Mapping[int, str]
    is_mariadb: bool
    written: dict[TableId, MysqlTable] = field(default_factory=dict)
    """The form in which our log has the newest rows of a table, and so the key of its topic."""
    awaited: set[TableId] = field(default_factory=set)
    """Tables of whose topics the key is not known before their re-read starts."""
    known_at: dict[TableId, FilePosition] = field(default_factory=dict)
    """Where the log ended after a table was looked up."""
    looked_at: dict[TableId, FilePosition] = field(default_factory=dict)
    """The same, of those that are read again since."""
    leaving: dict[TableId, FilePosition] = field(default_factory=dict)
    """Where tables are looked at again that cannot be captured any more: changes before are."""
    _fits: dict[tuple[int, int], Fit] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)
    """Keeps alive what `_fits` knows by its identity."""
    _between: dict[TableId, list[MysqlTable]] = field(default_factory=dict)
    """Forms that only the stream had."""
    _refused: set[str] = field(default_factory=set)

    def of(self, layout: RowsLayout, table: MysqlTable) -> Fit:
        key = (id(layout), id(table))
        if len(self._fits) > FITS_MAX:
            self._fits.clear()
            self._kept.clear()
        if key not in self._fits:
            self._kept += (layout, table)
            self._fits[key] = self._fit(layout, table)
        return self._fits[key]

    def has_key(self, form: MysqlTable) -> bool:
        """Whether the topic of the table has the key of this form."""
        written = self.written.get(form.table)
        if written is None:
            return form.table not in self.awaited
        return written is form or form.schema.has_key_of(written.schema)

    def write(self, form: MysqlTable) -> None:
        """The topic has the key of this form from here on."""
        self.written[form.table] = form
        self.awaited.discard(form.table)

    def is_expected(self, table: TableId, place: FilePosition) -> bool:
        """Whether the table is read again as it was later than at this place of the log."""
        looked = self.looked_at.get(table)
        return looked is not None and place.order <= looked.order

    def left_by(self, place: FilePosition) -> list[TableId]:
        """Returns the tables that are looked at again at this place."""
        return [name for name, end in self.leaving.items() if place.order >= end.order]

    def _fit(self, layout: RowsLayout, table: MysqlTable) -> Fit:
        wire = layout.table
        is_present = self._is_logged_as(table, wire)
        form, why = (table, "") if is_present else (self._other(wire, table), OTHER_FORM)
        if form is not None and not layout.has_all(form.places):
            return Fit(None, NOT_WHOLE)
        return Fit(form, why)

    def _is_logged_as(self, form: MysqlTable, wire: TableMap) -> bool:
        if form.problem:
            return False
        return is_logged_as(form.definitions, form.primary_key, wire, self.charsets)

    def _other(self, wire: TableMap, table: MysqlTable) -> MysqlTable | None:
        """Returns the form of the log's own description; None if that does not prove all of it."""
        written, between = self.written.get(wire.id), self._between.setdefault(wire.id, [])
        known = [*between[::-1], *([] if written is None else [written])]
        for form in known:
            if self._is_logged_as(form, wire):
                return form
        form = self._described(wire, [table, *known], written)
        if form.problem:
            self._say(wire.id, form.problem)
            return None
        between.append(form)
        del between[:-KNOWN_MAX]
        return form

    def _described(
        self, wire: TableMap, known: Sequence[MysqlTable], written: MysqlTable | None
    ) -> MysqlTable:
        definitions, problem = list[ColumnDefinition](), ""
        by_name: dict[str, list[ColumnDefinition]] = {}
        for form in known:
            for each in form.definitions:
                by_name.setdefault(each.name, []).append(each)
        for column in wire.columns:
            found = self._definition(column, by_name.get(column.name or "", ()))
            if found is None:
                problem = (
                    NO_NAMES if column.name is None else f"{column.name} may have several types"
                )
                break
            definitions.append(found)
        key = [definitions[place].name for place in wire.key or ()] if not problem else []
        if not (key or problem or written is None):
            problem = self._keyless_problem(written, definitions, by_name)
        return table_of(
            wire.id, definitions if not problem else [], key, key,
            is_mariadb=self.is_mariadb, problem=problem,
        )  # fmt: skip

    def _keyless_problem(
        self,
        written: MysqlTable,
        definitions: Sequence[ColumnDefinition],
        by_name: Mapping[str, Sequence[ColumnDefinition]],
    ) -> str:
        """The log does not tell which unique index `keys` names, nor which table of MariaDB keeps
        its former rows, in two columns more."""
        if written.schema.key:
            return "the table has no primary key"
        new = [each.name for each in definitions if each.name not in by_name]
        return f"{new[0]} may be a column of system versioning" if new and self.is_mariadb else ""

    def _definition(
        self, column: WireColumn, same_name: Sequence[ColumnDefinition]
    ) -> ColumnDefinition | None:
        for each in same_name:
            known = replace(each, is_nullable=column.is_nullable)
            if known.is_logged_as(column, self.charsets):
                return known
        found = definition_from_log(column, self.charsets, is_mariadb=self.is_mariadb)
        if found is not None and same_name and self.is_mariadb:
            return replace(found, is_generated=same_name[0].is_generated)
        return found

    def _say(self, table: TableId, problem: str) -> None:
        said = f"{table}: changes in a former form of the table are left out, as {problem}"
        if said not in self._refused:
            self._refused.add(said)
            logger.warning("%s; histories lack them", said)


def kinds_of_change(before: MysqlTable, now: MysqlTable) -> tuple[str, ...]:
    """Returns the kinds; without any difference, rows may have changed."""
    old = {each.name: each for each in before.definitions}
    new = {each.name: each for each in now.definitions}
    kinds = []
    if new.keys() - old.keys():
        kinds.append(ADD_COLUMN)
    if old.keys() - new.keys():
        kinds.append(DROP_COLUMN)
    both = [(old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    changed = [(was, becomes) for was, becomes in both if was.column_type != becomes.column_type]
    kinds += sorted({WIDEN_TYPE if is_wider(*each) else CHANGE_TYPE for each in changed})
    if before.schema.key != now.schema.key:
        kinds.append(CHANGE_KEY)
    return tuple(kinds or [CHANGE_ROWS])


def is_wider(before: ColumnDefinition, now: ColumnDefinition) -> bool:
    """Returns whether each value of before fits into the new type, as far as types tell."""
    old, new = before.data_type, now.data_type
    if old in INTEGER_BITS and new in INTEGER_BITS:
        return _highest_bit(now) >= _highest_bit(before) and (
            before.is_unsigned or not now.is_unsigned
        )
    if old == new == "decimal":
        digits = now.precision - now.scale >= before.precision - before.scale
        return digits and now.scale >= before.scale and (before.is_unsigned or not now.is_unsigned)
    if old == new == "enum":
        return now.labels[: len(before.labels)] == before.labels
    if old == new and old in FRACTIONS:
        return now.fraction >= before.fraction
    is_longer = any(old in kind and new in kind - {"char"} for kind in LENGTHS)
    return is_longer and now.charset == before.charset and now.octets >= before.octets


def _highest_bit(column: ColumnDefinition) -> int:
    return INTEGER_BITS[column.data_type] - (not column.is_unsigned)
