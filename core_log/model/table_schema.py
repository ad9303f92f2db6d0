"""The schema of a table: its name, its ordered columns, and its key."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa


class TableId(NamedTuple):
    """The name of a table at its source or target; `namespace` is empty if the system has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, and the meaning of its values if the type does not tell it."""

    name: str
    type: pa.DataType
    is_nullable: bool = True
    semantic: str = ""
    """Debezium's name of a meaning that `type` does not carry, such as `io.debezium.data.Json`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the meaning, such as the labels of an enum under `allowed`."""
    mask: str = ""
    """The mask that hid its values before the log; needed to compare them with the source."""
    rule_name: str = ""
    """The column's name in the rule of the mask, if that is a former name."""
    id: int = 0
    """Id of the column in its table, which a rename does not change; 0 if the source has none."""
    missing: str | None = None
    """Text of its value in rows that are older than the column and were not written since."""


class DroppedColumn(NamedTuple):
    """A column that was left out before the log."""

    name: str
    id: int = 0
    rule_name: str = ""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The schema of a table during a part of its history."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """Names of the key's columns in the key's own order; empty for a table without a key."""
    dropped: tuple[DroppedColumn, ...] = ()
    id: int = 0
    """Id of the table; another table with the same name has another id; 0 if the source has
    none."""

    def __post_init__(self) -> None:
        missing = set(self.key) - set(self.names)
        assert not missing, f"a key is made of columns of its table, {missing} are none"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        """Returns the Arrow schema of a batch of rows."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def without_ids(self) -> "TableSchema":
        """Returns the schema without ids, to compare schemas of which one may lack them."""
        dropped = tuple(DroppedColumn(each.name) for each in self.dropped)
        columns = tuple(replace(each, rule_name="", id=0, missing=None) for each in self.columns)
        return replace(self, columns=columns, dropped=dropped, id=0)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def has_key_of(self, other: "TableSchema") -> bool:
        """Whether records of both may share a topic: the same key columns of the same types."""
        ours, theirs = (
            [(name, each.column(name).type) for name in each.key] for each in (self, other)
        )
        return ours == theirs
