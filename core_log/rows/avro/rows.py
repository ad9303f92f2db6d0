"""Rows as Avro records: only the key cannot be null, as it is all a delete may know."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.avro.schema import legal_names
from headwater.core_log.rows.avro.writer import AvroPart, value_pieces


def row_pieces(schema: TableSchema, columns: Mapping[str, pa.Array]) -> list[AvroPart]:
    return [
        piece
        for name, column in columns.items()
        for piece in value_pieces(column, is_optional=name not in schema.key)
    ]


def row_columns(
    rows: pa.StructArray, names: Sequence[str], *, may_have: Sequence[str] = ()
) -> list[pa.Array]:
    """The columns by the names that Avro allows; a writer with other columns is refused."""
    legal = legal_names(names)
    found = {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}
    missing, extra = set(legal) - found.keys(), found.keys() - {*legal, *may_have}
    if missing or extra:
        raise DecodeError(
            "the schema of these records has other columns than their table",
            missing=sorted(missing),
            extra=sorted(extra),
        )
    return [found[name] for name in legal]


def fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Avro's column in its wire type; raises `ValueError` where it is of another kind."""
    if pa.types.is_null(column.type):
        return column.cast(kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        members = [
            fit(part, member.type) for part, member in zip(column.flatten(), kind, strict=True)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        items = fit(column.flatten(), kind.value_type)
        counts = pc.list_value_length(column).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(offsets, items, mask=mask)
    if column.type == kind:
        return column
    if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
        return column.cast(kind)
    raise ValueError("this column is of another type")


def zeros_where_null(column: pa.Array) -> pa.Array:
    """A truncate has no row, and a key's columns have no null."""
    if not column.null_count:
        return column
    kind = column.type
    if kind in (pa.string(), pa.binary()):
        return column.fill_null("" if kind == pa.string() else b"")
    return pc.if_else(column.is_valid(), column, pa.scalar(0).cast(kind))
