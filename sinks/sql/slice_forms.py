"""The forms that tables have within one slice, where DDL commits by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.core_log.model.table_schema import TableId, TableSchema

Names = Callable[[TableSchema], dict[str, str]]
"""Returns the target's names of the source's columns."""
Moves = Mapping[str, str | None]
"""New names of columns of the target by their names before; None for a column that is dropped."""


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
