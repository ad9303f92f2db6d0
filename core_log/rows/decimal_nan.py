"""Decimals with a NaN among them, which are converted as text because the wire has a word for
NaN."""

from dataclasses import replace

import pyarrow as pa

from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.column_types import parse_type, type_text
from headwater.core_log.rows.converters.converter import DECIMAL

DECLARED = "headwater.declared"
"""Parameter of a column that is text for a while: its type in the log."""


def as_text(column: Column) -> Column:
    """Returns a column of decimals, or of lists of them, as text. In the modes `string` and
    `double` the records look like those of the column itself, except for NaN."""
    declared = {DECLARED: type_text(column.type)}
    return replace(
        column,
        type=text_type(column.type),
        semantic=DECIMAL,
        parameters={**column.parameters, **declared},
    )


def text_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(text_type(kind.value_type)) if pa.types.is_list(kind) else pa.string()


def declare_nan_columns(schema: TableSchema) -> TableSchema:
    """Returns the schema that such records are written under. The table's schema stays the same,
    and a reader with a decimal column refuses the record instead of reading a NaN as a number."""
    if not any(DECLARED in column.parameters for column in schema.columns):
        return schema
    return replace(schema, columns=tuple(map(_declare, schema.columns)))


def _declare(column: Column) -> Column:
    if DECLARED not in column.parameters:
        return column
    others = {name: text for name, text in column.parameters.items() if name != DECLARED}
    kind = parse_type(column.parameters[DECLARED])
    return replace(column, type=kind, semantic="", parameters=others)
