"""The form of a target table for rows of one schema, and its forms within a slice where DDL commits
by itself."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.object_names import OWN, fit, own_columns
from headwater.sinks.sql.dialects.dialect import Dialect
from headwater.sinks.sql.settings import Mode, SqlTableSettings

US = pa.timestamp("us")
OWN_COLUMNS = own_columns(US)
Names = Callable[[TableSchema], dict[str, str]]
"""Returns the target's names of the source's columns."""
Moves = Mapping[str, str | None]
"""New names of columns of the target by their names before; None for a column that is dropped."""


@dataclass(frozen=True, slots=True)
class SqlShadow:
    """The copy of a table in a rebuild, and its generation."""

    table: TableId
    generation: int
    newest: TableSchema | None = None
    """The schema whose types its columns get; None: the first one."""
    recipe: str = ""
    """The digest of the copy's recipe."""


@dataclass(frozen=True, slots=True)
class SqlTableLayout:
    """A table of the target as rows of one schema are written to it."""

    table: TableId
    mode: Mode
    ignores_deletes: bool
    key: tuple[str, ...]
    """Key columns of the target."""
    names: Mapping[str, str]
    """Source column to target column, for those that are written."""
    absent: Mapping[str, pa.DataType | None]
    """Columns of the target that the source no longer has."""
    generation: int
    stays: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Source columns to the target's type that is kept though it does not hold all values. Values
    that would become other values are rejected."""

    @property
    def source_key(self) -> tuple[str, ...]:
        """The target's names of the source's key columns."""
        return tuple(name for name in self.key if not name.startswith(OWN))


def columns_of(
    dialect: Dialect, schema: TableSchema, layout: SqlTableLayout, settings: SqlTableSettings
) -> dict[str, str]:
    """Returns columns of the target with their types there."""
    found = {
        layout.names[column.name]: sql_type_of(dialect, column, layout, settings)
        for column in schema.columns
    }
    for name, kind in OWN_COLUMNS[layout.mode].items():
        found[name] = dialect.fit(Column(name, kind), is_key=name in layout.key).sql
    return found


def sql_type_of(
    dialect: Dialect, column: Column, layout: SqlTableLayout, settings: SqlTableSettings
) -> str:
    is_key = layout.names[column.name] in layout.key
    return settings.types.get(column.name) or dialect.fit(column, is_key=is_key).sql


def fit_columns(
    table: TableId, names: Iterable[str], *, bytes_max: int, is_case_sensitive: bool
) -> dict[str, str]:
    """Returns source column to target column; raises `SchemaRefused` if two get the same name."""
    fitted = {name: fit(name, bytes_max=bytes_max) for name in names}
    taken: dict[str, str] = {}
    for name, short in fitted.items():
        folded = short if is_case_sensitive else short.casefold()
        if folded in taken:
            raise SchemaRefused(
                "two columns have the same name in the target",
                table=str(table),
                columns=(taken[folded], name),
                hint="rename one of them with `transform: rename`",
            )
        if folded.startswith(OWN) or "\0" in name or not name:
            raise SchemaRefused(
                "a column's name cannot be used in the target",
                table=str(table),
                column=name,
                hint="rename it with `transform: rename`",
            )
        taken[folded] = name
    return fitted


@dataclass(slots=True)
class SliceForms:
    """A slice begins again after each alteration of a table, with the table's first form.

    Rows of the forms before the alteration are then written under the names that it made. Else
    renames would be taken back for them, and repeated, for ever.
    """

    _met: dict[TableId, int] = field(default_factory=dict)
    """How many forms of a table this attempt has come to."""
    _forms: dict[TableId, list[TableSchema]] = field(default_factory=dict)
    """The forms that any attempt has come to."""
    _moves: dict[TableId, list[tuple[int, Moves]]] = field(default_factory=dict)
    """The alterations in their order, each with the number of its form."""

    def begin(self) -> None:
        """Begins an attempt."""
        self._met.clear()

    def meet(self, schema: TableSchema) -> None:
        """Counts a form. The source may have renamed columns since an earlier attempt, which older
        forms then have under their present names: what is known of the forms is then obsolete."""
        number = self._met[schema.table] = self._met.get(schema.table, 0) + 1
        forms = self._forms.setdefault(schema.table, [])
        if number <= len(forms) and forms[number - 1] != schema:
            del forms[number - 1 :]
            self._moves.pop(schema.table, None)
        if number > len(forms):
            forms.append(schema)

    def break_off(self, schema: TableSchema, moves: Moves) -> None:
        """Notes that the table is altered for the form that was met last, and that the slice begins
        again."""
        self._moves.setdefault(schema.table, []).append((self._met[schema.table], moves))

    def is_behind(self, schema: TableSchema) -> bool:
        """Returns whether an earlier attempt altered the table for a later form."""
        number = self._met.get(schema.table, 0)
        return any(number < later for later, _ in self._moves.get(schema.table, ()))

    def end(self) -> None:
        """Ends the slice."""
        self._forms.clear()
        self._moves.clear()

    def find_names(self, schema: TableSchema, names: Names) -> dict[str, str]:
        """Returns the target's names of the columns, as alterations for later forms have left them.
        A column that was dropped for one is left out."""
        number, found = self._met.get(schema.table, 0), dict[str, str]()
        for column, first in names(schema).items():
            name: str | None = first
            for later, moves in self._moves.get(schema.table, ()):
                if number < later and name is not None:
                    name = moves.get(name, name)
            if name is not None:
                found[column] = name
        return found
