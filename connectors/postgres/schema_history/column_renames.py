"""Which names columns had, so that one that had another for a while is found in the stream."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.schema_history.table_definition import PREFIX, TableForm
from headwater.core_log.model.changes import Positions


class NamedColumn(NamedTuple):
    """A column as the stream calls it."""

    name: str
    number: int | None
    """None where the catalogue has none of this name and type any more."""


@dataclass(slots=True)
class ColumnNames:
    """Follows the stream. A look at the catalogue does not show a name that was there and went
    between two looks, under which rows were written."""

    _by_oid: dict[int, Sequence[NamedColumn]] = field(default_factory=dict)
    """Of each table in the order of its columns, which no name changes."""

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
        """Whether a column lacks that was there before, or has another place."""
        before = [each.name for each in self._by_oid.get(oid, ())]
        return [name for name in before if name in names] != before or self._has_moved(oid, names)

    def saw(self, oid: int, columns: Sequence[NamedColumn]) -> None:
        """What the stream calls them from here on."""
        self._by_oid[oid] = columns

    def why_read_again(self, oid: int, names: Sequence[str], table: CapturedTable) -> str:
        """What became of a column that lacks; empty where it was dropped. `table` is as the
        catalogue has it now, which is later than what the stream says."""
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
