"""Converts a table's rows to the wire and back, and reports the rows that have no wire form."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.table_schema import Column as SchemaColumn
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.row_writer import RowColumn, ValueEncoding
from headwater.core_log.rows.connect_schema import Converter
from headwater.core_log.rows.converters.column import form_of
from headwater.core_log.rows.json.writer import json_text
from headwater.core_log.rows.rejects import UNFIT, misfit, scalar_class, whole_or_rejected
from headwater.core_log.rows.schema_text import type_text
from headwater.core_log.rows.settings import WireSettings
from headwater.core_log.rows.text.datetime import check_moments

Made = TypeVar("Made")
Unpack = Callable[[pa.Array, pa.DataType], pa.Array]
"""Converts a column from a format's type to its wire type."""


@dataclass(frozen=True, slots=True)
class RowConverters:
    """The converters of all columns of one schema."""

    schema: TableSchema
    forms: Mapping[str, Converter]
    _made: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """Cache of expensive objects of this schema: schema texts, registered ids."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    @classmethod
    def of(cls, schema: TableSchema, wire: WireSettings) -> "RowConverters":
        return cls(schema, {column.name: form_of(column, wire) for column in schema.columns})

    @property
    def wire_type(self) -> pa.StructType:
        return pa.struct([pa.field(name, form.type) for name, form in self.forms.items()])

    def to_wire(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        """Converts the rows; raises `RowsRejected` for rows that the chosen modes cannot
        express."""
        return self._express(rows, Converter.write)

    def to_json(self, rows: pa.RecordBatch) -> Mapping[str, RowColumn]:
        """Converts the rows for JSON, which takes some columns unchanged."""
        return self._express(rows, _json)

    def _express(
        self, rows: pa.RecordBatch, express: Callable[[Converter, pa.Array], Made]
    ) -> Mapping[str, Made]:
        def express_all(columns: Sequence[pa.Array]) -> dict[str, Made]:
            return {
                name: express(form, column)
                for (name, form), column in zip(self.forms.items(), columns, strict=True)
            }

        return whole_or_rejected(
            rows.num_rows,
            lambda start, end: express_all(rows.slice(start, end - start).columns),
            lambda row: self._misfits(
                rows.slice(row, 1).columns, lambda form, column: form.write(column)
            ),
            "rows have values that the chosen wire form cannot express",
        )

    def from_wire(
        self, columns: Sequence[pa.Array], row_count: int, *, unpack: Unpack
    ) -> pa.RecordBatch:
        """Converts rows from the wire; raises `RowsRejected` for rows that do not fit their
        columns."""

        def read(form: Converter, column: pa.Array) -> pa.Array:
            return form.read(unpack(column, form.type))

        def convert(start: int, end: int) -> list[pa.Array]:
            return [
                read(form, column.slice(start, end - start))
                for form, column in zip(self.forms.values(), columns, strict=True)
            ]

        read_columns = whole_or_rejected(
            row_count,
            convert,
            lambda row: self._misfits([column.slice(row, 1) for column in columns], read),
            "rows do not fit their schema",
        )
        if not read_columns:
            empty = pa.array([{}] * row_count, pa.struct([]))
            return pa.RecordBatch.from_struct_array(empty)
        return pa.RecordBatch.from_arrays(read_columns, schema=self.schema.arrow)

    def _misfits(
        self, columns: Sequence[pa.Array], convert: Callable[[Converter, pa.Array], pa.Array]
    ) -> str:
        bad = []
        for column, values in zip(self.schema.columns, columns, strict=True):
            try:
                convert(self.forms[column.name], values)
            except UNFIT:
                bad.append(_misfit(column, self.forms[column.name], values[0]))
        return "; ".join(bad)

    def refuse_nulls(self, rows: pa.RecordBatch, is_deleted: pa.BooleanArray) -> None:
        """Raises for nulls in columns that have none. Only the key of a deleted row must be
        known."""
        problems = {}
        for column, values in zip(self.schema.columns, rows.columns, strict=True):
            if not values.null_count or (column.is_nullable and column.name not in self.schema.key):
                continue
            is_bad = values.is_null()
            if column.name not in self.schema.key:
                is_bad = pc.and_not(is_bad, is_deleted)
            problems[f"column {column.name!r} is null"] = is_bad
        refuse(problems)


def _misfit(column: SchemaColumn, form: Converter, scalar: pa.Scalar) -> str:
    where = f"column {column.name}"
    if not isinstance(scalar, pa.StringScalar):
        class_name = scalar_class(scalar, column.type)
        return f"{where} is {type_text(column.type)} and the value is {class_name}"
    if pa.types.is_decimal(column.type) and pa.types.is_binary(form.type):
        return f"{where} is {type_text(column.type)} and the bytes are not a number of this type"
    return misfit(where, column.type, scalar.as_py())


def _json(form: Converter, column: pa.Array) -> RowColumn:
    if form.direct is None:
        return json_text(form.write(column))
    if form.direct is ValueEncoding.MOMENT:
        check_moments(column)
    return RowColumn(column, form.direct)


def refuse(problems: Mapping[str, pa.BooleanArray]) -> None:
    """Raises `RowsRejected` if one of these problems is true for a row."""
    reasons: dict[int, str] = {}
    for problem, is_bad in problems.items():
        if pc.any(is_bad).as_py():
            for row in pc.indices_nonzero(is_bad).to_pylist():
                reasons.setdefault(row, problem)
    if reasons:
        raise RowsRejected("rows do not fit their schema", reasons=dict(sorted(reasons.items())))
