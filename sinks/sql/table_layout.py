"""The form of a target table in which rows of one schema are written: columns, types and key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.object_names import fit
from headwater.sinks.own_columns import OWN, own_columns
from headwater.sinks.sql.dialects.dialect import Dialect
from headwater.sinks.sql.settings import Mode, SqlTableSettings

US = pa.timestamp("us")
OWN_COLUMNS = own_columns(US)


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
