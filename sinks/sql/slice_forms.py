"""The forms that tables have within one slice, where DDL commits by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.core_log.model.table_schema import TableId, TableSchema

Names = Callable[[TableSchema], dict[str, str]]
"""Returns the target's names of the source's columns."""


@dataclass(slots=True)
class SliceForms:
    """A slice begins again after each alteration of a table, with the table's first form.

    Rows of the forms before the alteration are then written under the names that it made. Else
    renames would be taken back for them, and repeated, for ever.
    """

    _met: dict[TableId, int] = field(default_factory=dict)
    """How many forms of a table this attempt has come to."""
    _reached: dict[TableId, tuple[int, TableSchema]] = field(default_factory=dict)
    """The last form at which an attempt broke off, and its number."""
    _ids: dict[TableId, dict[str, int]] = field(default_factory=dict)
    """The ids that names without one have in a later form of the slice."""

    def begin(self) -> None:
        """Begins an attempt."""
        self._met.clear()

    def meet(self, schema: TableSchema) -> None:
        """Counts a form."""
        self._met[schema.table] = self._met.get(schema.table, 0) + 1
        known = self._ids.setdefault(schema.table, {})
        for column in schema.columns:
            if column.id and not known.get(column.name, column.id):
                known[column.name] = column.id
            known.setdefault(column.name, column.id)

    def break_off(self, schema: TableSchema) -> None:
        """Notes that the table gets the form that was met last, unless one of a later form is on
        its way, and the slice begins again. The same form may have other names than before: those
        of now."""
        number, _ = self._reached.get(schema.table, (0, schema))
        if self._met[schema.table] >= number:
            self._reached[schema.table] = self._met[schema.table], schema

    def is_behind(self, schema: TableSchema) -> bool:
        """Returns whether an earlier attempt came to a later form of the table."""
        number, _ = self._reached.get(schema.table, (0, schema))
        return self._met.get(schema.table, 0) < number

    def end(self) -> None:
        """Ends the slice."""
        self._reached.clear()
        self._ids.clear()

    def find_names(self, schema: TableSchema, names: Names) -> dict[str, str]:
        """Returns the target's names of the columns. A column is left out if another one has its
        name in the form that was reached: the target does not have it any more."""
        _, reached = self._reached.get(schema.table, (0, schema))
        if not self.is_behind(schema) or reached.id != schema.id:
            return names(schema)
        ids = self._ids.get(schema.table, {})
        return _under_later_names(schema, ids, names(schema), reached, names(reached))


def _under_later_names(
    schema: TableSchema,
    ids: Mapping[str, int],
    names: Mapping[str, str],
    reached: TableSchema,
    later: Mapping[str, str],
) -> dict[str, str]:
    of_ids = {each.id: later[each.name] for each in reached.columns if each.id}
    found = dict[str, str]()
    for column in schema.columns:
        name, id = names[column.name], column.id or ids.get(column.name, 0)
        if id and column.name not in schema.key:
            name = of_ids.get(id, name)
            if id not in of_ids and name in of_ids.values():
                continue
        found[column.name] = name
    return found
