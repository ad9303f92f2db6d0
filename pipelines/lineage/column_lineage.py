"""From which columns of the log each column of a target table comes, by the rules of the file."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.transforms.rows import RuleTables

UsedColumns = Callable[[str, Collection[str]], Collection[str]]
"""Returns those of the columns that an SQL expression uses."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column of the log from which a value comes, and how."""

    column: str
    kind: Literal["IDENTITY", "TRANSFORMATION", "FILTER"] = "IDENTITY"
    description: str = ""
    is_masked: bool = False


@dataclass(frozen=True, slots=True)
class TableLineage:
    columns: Mapping[str, Sequence[ColumnOrigin]]
    """By the target's column; columns with the same value in all rows are left out."""
    filters: Sequence[ColumnOrigin]
    """Columns that decide whether there is a row at all."""


def table_lineage(
    schema: TableSchema,
    target: TableSchema,
    rules: Iterable[TransformRule],
    used_columns: UsedColumns,
    *,
    constants: Collection[str] = (),
) -> TableLineage:
    """Returns the lineage of `target`, which the rules and routes make of `schema`. `constants`:
    columns that a route has added."""
    lineage = _Lineage.of(schema)
    for rule in rules:
        if RuleTables(rule).match(schema.table):
            lineage.follow(rule, used_columns)
    columns = {name: lineage.of_column(name) for name in target.names if name not in constants}
    return TableLineage(columns, tuple(dict.fromkeys(lineage.filters)))


@dataclass(slots=True)
class _Lineage:
    origins: dict[str, tuple[ColumnOrigin, ...]]
    otherwise: tuple[ColumnOrigin, ...]
    """Origins of columns that a Python function has added."""
    filters: list[ColumnOrigin]

    @staticmethod
    def of(schema: TableSchema) -> "_Lineage":
        origins: dict[str, tuple[ColumnOrigin, ...]] = {
            column.name: (
                ColumnOrigin(
                    column.name,
                    "TRANSFORMATION" if column.mask else "IDENTITY",
                    f"mask: {column.mask}" if column.mask else "",
                    bool(column.mask),
                ),
            )
            for column in schema.columns
        }
        return _Lineage(origins, (), [])

    def of_column(self, name: str) -> tuple[ColumnOrigin, ...]:
        return self.origins.get(name, self.otherwise)

    def follow(self, rule: TransformRule, used_columns: UsedColumns) -> None:
        """Steps of one rule, in the order in which they apply."""
        if rule.filter:
            used = used_columns(rule.filter, self.origins)
            self.filters += self._made(used, f"filter: {rule.filter}", kind="FILTER")
        before = self.origins
        self.origins = before | {
            name: self._made(used_columns(text, before), text) for name, text in rule.add.items()
        }
        self.origins = {rule.rename.get(name, name): at for name, at in self.origins.items()}
        for name in rule.cast.keys() & self.origins.keys():
            self.origins[name] = self._made([name], f"cast to {rule.cast[name]}")
        if rule.python:
            self.otherwise = self._made(self.origins, f"python: {rule.python}")
            self.origins = {}

    def _made(
        self,
        names: Iterable[str],
        description: str,
        *,
        kind: Literal["TRANSFORMATION", "FILTER"] = "TRANSFORMATION",
    ) -> tuple[ColumnOrigin, ...]:
        """Origins of a value that is computed from these columns."""
        found = [each for name in names for each in self.of_column(name)]
        found += self.otherwise if not found else ()
        made = (replace(each, kind=kind, description=description) for each in found)
        return tuple(dict.fromkeys(made))
