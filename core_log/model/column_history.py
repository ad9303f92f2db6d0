"""Converts changes of a table's older schemas to its newest one; columns are identified by their
ids."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import HAVE_NO_ROW, TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class View:
    """A mapping from changes under one schema to the newest schema. A column keeps its type. A
    dropped column keeps its name unless another column has taken it."""

    schema: TableSchema
    indices: tuple[int, ...]
    """Indices of the kept columns in the schema of the changes."""
    values: tuple[pa.Scalar, ...] = ()
    """Values of the columns after these, which are newer than the changes."""

    def apply(self, changes: TableChanges) -> TableChanges:
        if changes.schema is self.schema:
            return changes
        rows = [changes.rows.column(index) for index in self.indices]
        has_row = pc.invert(pc.is_in(changes.operations, value_set=HAVE_NO_ROW))
        filled = [_repeat(value, has_row) for value in self.values]
        return replace(
            changes,
            schema=self.schema,
            rows=pa.RecordBatch.from_arrays([*rows, *filled], schema=self.schema.arrow),
            before=None if changes.before is None else self._before(changes.before),
        )

    def _before(self, before: pa.StructArray) -> pa.StructArray:
        is_known = before.is_valid()
        columns = [pc.struct_field(before, [index]) for index in self.indices]
        columns += [_repeat(value, is_known) for value in self.values]
        return pa.StructArray.from_arrays(
            columns, fields=list(self.schema.arrow), mask=pc.invert(is_known)
        )


class ColumnHistory:
    """All schemas that a topic's table has had, oldest first."""

    def __init__(self, schemas: Sequence[TableSchema], *, names: Collection[str] = ()) -> None:
        """`names` are the wanted column names: a column that ever had one of them gets it, even if
        its newest name is another one."""
        self._schemas, self._views = schemas, dict[int, View]()
        self._id = schemas[-1].id if schemas else 0
        self._newest_names = schemas[-1].names if schemas else ()
        self._names = self._choose_names(names)
        self._added = self._columns_with_values()

    @property
    def views(self) -> list[View]:
        return [self.view(index) for index in range(len(self._schemas))]

    def view(self, index: int) -> View:
        """Returns the view of the schema at that index."""
        if index not in self._views:
            self._views[index] = self._make_view(index)
        return self._views[index]

    def _make_view(self, index: int) -> View:
        schema = self._schemas[index]
        names = self._names_of(schema)
        own = {name for column, name in zip(schema.columns, names, strict=True) if column.id}
        kept = [
            at
            for at, (column, name) in enumerate(zip(schema.columns, names, strict=True))
            if name is not None and (column.id or name not in own or not self._knows(schema))
        ]
        columns = [replace(schema.columns[at], name=names[at] or "") for at in kept]
        present = {column.name for column in columns}
        filled = [
            column
            for since, column in self._added.values()
            if index < since and self._knows(schema) and column.name not in present
        ]
        key = tuple(names[schema.names.index(name)] for name in schema.key)
        if not filled and tuple(columns) == schema.columns:
            return View(schema, tuple(range(len(columns))))
        assert all(key), "a topic's key keeps its columns"
        found = replace(
            schema,
            columns=(*columns, *filled),
            key=tuple(name for name in key if name is not None),
        )
        if found == self._schemas[-1]:
            found = self._schemas[-1]
        return View(found, tuple(kept), tuple(missing_value(column) for column in filled))

    def _knows(self, schema: TableSchema) -> bool:
        return bool(schema.id) and schema.id == self._id

    def _names_of(self, schema: TableSchema) -> list[str | None]:
        """Returns the present names of the schema's columns; None if another column has the name
        now. Key columns keep their names: records of a topic are found by the names in their
        keys."""
        names = [self._name_of(schema, column) for column in schema.columns]
        gone = {column.name for column, name in zip(schema.columns, names, strict=True) if not name}
        kept = gone & {*schema.key}
        return [
            column.name if column.name in kept else None if name in kept else name
            for column, name in zip(schema.columns, names, strict=True)
        ]

    def _name_of(self, schema: TableSchema, column: Column) -> str | None:
        if not column.id or not self._knows(schema):
            return column.name
        return self._names[column.id]

    def _choose_names(self, wanted: Collection[str]) -> dict[int, str | None]:
        """Returns the wanted names by column id. A name that two columns had belongs to the newer
        one."""
        given: dict[int, list[str]] = {}
        order: list[int] = []
        for schema in reversed(self._schemas):
            if not self._knows(schema):
                continue
            for column in sorted(schema.columns, key=lambda each: each.id):
                if column.id not in given:
                    order.append(column.id)
                given.setdefault(column.id, []).append(column.name)
        given.pop(0, None)
        found: dict[int, str | None] = {}
        taken: set[str] = set()
        for column_id in (each for each in order if each):
            names = given[column_id]
            name = next((each for each in names if each in wanted), names[0])
            found[column_id] = None if name in taken else name
            taken.add(name)
        return found

    def _columns_with_values(self) -> dict[int, tuple[int, Column]]:
        """Returns, by id, the columns that were added with a value for existing rows: the index of
        the schema that added them, and their present names."""
        first: dict[int, int] = {}
        found: dict[int, tuple[int, Column]] = {}
        ids = {column.id for column in self._schemas[-1].columns} if self._schemas else set()
        for index, schema in enumerate(self._schemas):
            for column in schema.columns if self._knows(schema) else ():
                since = first.setdefault(column.id, index)
                name = self._names.get(column.id)
                is_there = column.id in ids or name in self._newest_names
                if name and is_there and column.missing is not None:
                    found.setdefault(column.id, (since, replace(column, name=name)))
        return found


def recall_columns(schema: TableSchema, before: TableSchema | None) -> TableSchema:
    """Returns a new schema as the log stores it after `before`. An added column keeps its value for
    existing rows (or that it has none); all records hold the columns of a topic's first schema."""
    known: dict[int, str | None] = {column.id: None for column in schema.columns}
    if before is not None and schema.id and before.id == schema.id:
        known = {column.id: column.missing for column in before.columns if column.id}
    kept = [known.get(column.id, column.missing) for column in schema.columns]
    if all(column.missing == value for column, value in zip(schema.columns, kept, strict=True)):
        return schema
    columns = zip(schema.columns, kept, strict=True)
    return replace(
        schema, columns=tuple(replace(column, missing=value) for column, value in columns)
    )


def missing_value(column: Column) -> pa.Scalar:
    """Returns the column's value for rows that are older than the column."""
    return pa.scalar(column.missing, pa.string()).cast(column.type)


def missing_text(value: pa.Scalar) -> str | None:
    """Returns the text of a value that is stored with its column; None if the text would not give
    the same value."""
    try:
        text = value.cast(pa.string())
        return text.as_py() if text.cast(value.type) == value else None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _repeat(value: pa.Scalar, where: pa.BooleanArray) -> pa.Array:
    at = np.where(where.to_numpy(zero_copy_only=False), 0, 1)
    both = pa.concat_arrays([pa.array([value], value.type), pa.nulls(1, value.type)])
    return both.take(pa.array(at, pa.int64()))
