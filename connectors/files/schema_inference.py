"""The known columns of a table: given, or inferred once and only added to."""

import json
from collections.abc import Mapping

import pyarrow as pa

from headwater.connectors.files.contents import BrokenFile
from headwater.core_log.foundation.errors import DecodeError, PositionLost
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.schema_text import parse_type, type_text

PART = "table/"


class InferredSchema:
    """A schema that grows by new columns; a column never changes its type and is never removed."""

    def __init__(
        self,
        table: TableId,
        columns: Mapping[str, pa.DataType],
        *,
        key: tuple[str, ...],
        grows: bool,
    ) -> None:
        self.table, self.key = table, key
        self.types = dict(columns)
        self._grows = grows
        self._schema: TableSchema | None = None

    @property
    def is_closed(self) -> bool:
        """Whether unknown columns are left out."""
        return bool(self.types) and not self._grows

    @property
    def schema(self) -> TableSchema:
        if self._schema is None:
            if missing := [name for name in self.key if name not in self.types]:
                raise BrokenFile(f"columns of the key are missing: {', '.join(missing)}")
            columns = tuple(
                Column(name, kind, is_nullable=name not in self.key)
                for name, kind in self.types.items()
            )
            self._schema = TableSchema(self.table, columns, self.key)
        return self._schema

    def add(self, columns: Mapping[str, pa.DataType]) -> None:
        fresh = {name: kind for name, kind in columns.items() if name not in self.types}
        if fresh:
            self.types |= fresh
            self._schema = None

    def to_text(self) -> str:
        return json.dumps({name: type_text(kind) for name, kind in self.types.items()})


def types_from_text(text: str) -> dict[str, pa.DataType]:
    try:
        return {name: parse_type(kind) for name, kind in json.loads(text).items()}
    except (ValueError, AttributeError, DecodeError) as error:
        raise PositionLost(
            "stored columns were not written by the files source",
            hint="headwater offsets reset PIPELINE reads the files again from their beginning",
        ) from error


def settled_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in which an inferred or foreign column is stored."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return settled_type(kind.value_type)
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if (
        pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        unit = "ns" if kind.unit == "ns" else "us"
        return pa.timestamp(unit, None if kind.tz is None else "UTC")
    if pa.types.is_time(kind):
        return pa.time64("ns" if kind.unit == "ns" else "us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(settled_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, settled_type(field.type)) for field in kind])
    type_text(kind)  # raises for a type that the log does not support
    return kind
