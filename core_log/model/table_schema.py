"""What a table looks like: its name, its columns in order, and the key that tells rows apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa


class TableId(NamedTuple):
    """A table's name at its source or its target; `namespace` is empty where there are none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what values it holds, and what they mean where the type alone does not say."""

    name: str
    type: pa.DataType
    is_nullable: bool = True
    semantic: str = ""
    """Debezium's name of a meaning that `type` does not carry, such as `io.debezium.data.Json`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What belongs to the meaning, such as the labels of an enum under `allowed`."""
    mask: str = ""
    """What has hidden its values before they entered the log, for whoever compares."""
    rule_name: str = ""
    """What the rule that hides it calls it, where that is a former name of its."""
    id: int = 0
    """Which it keeps in its table whatever it is called; 0 where the source does not say."""
    missing: str | None = None
    """As text, the value of rows that are older than the column and were never written since."""


class DroppedColumn(NamedTuple):
    """A column that was left out before the log."""

    name: str
    id: int = 0
    rule_name: str = ""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table as it was during a stretch of its history."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Names of the key's columns in the key's own order; empty for a table without a key."""
    dropped: tuple[DroppedColumn, ...] = ()
    id: int = 0
    """Another one for another table of the same name; 0 where the source does not say."""

    def __post_init__(self) -> None:
        missing = set(self.key) - set(self.names)
        assert not missing, f"a key is made of columns of its table, {missing} are none"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """The schema of a batch of rows."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def without_ids(self) -> "TableSchema":
        """For whoever compares forms that may have been written before ids were known."""
        dropped = tuple(DroppedColumn(each.name) for each in self.dropped)
        columns = tuple(replace(each, rule_name="", id=0, missing=None) for each in self.columns)
        return replace(self, columns=columns, dropped=dropped, id=0)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)
