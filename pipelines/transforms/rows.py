"""What the transforms after the log are made of: steps, columns put in place, failing rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema


class TransformStep(Protocol):
    """One thing that is done to the changes of one schema."""

    @property
    def schema(self) -> TableSchema:
        """The table as it is afterwards."""
        ...

    def apply(self, changes: TableChanges) -> TableChanges:
        """Never handed a truncate. Raises RecordsRejected for rows that are to blame."""
        ...


def is_operation(changes: TableChanges, *operations: Operation) -> pa.BooleanArray:
    return pc.is_in(changes.operations, value_set=pa.array(operations, pa.uint8()))


def with_columns(
    changes: TableChanges, schema: TableSchema, columns: Mapping[str, pa.Array]
) -> TableChanges:
    """The same changes with these columns in place of, or beside, their own; the rows before them
    no longer look like the table and are left out."""
    arrays = [
        columns[name] if name in columns else changes.rows.column(name) for name in schema.names
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return replace(changes, schema=schema, rows=rows, before=None)


def put_columns(schema: TableSchema, added: Sequence[Column]) -> TableSchema:
    """Each in the place of the column of its name, or at the end."""
    columns = {column.name: column for column in schema.columns}
    return replace(schema, columns=tuple((columns | {each.name: each for each in added}).values()))


def failing_rows(
    rows: int,
    attempt: Callable[[int, int], object],
    failure: type[Exception] | tuple[type[Exception], ...],
) -> dict[int, Exception]:
    """The rows on which `attempt` (first row, count) fails when they are tried alone; good
    stretches are passed over whole."""
    failed: dict[int, Exception] = {}
    waiting = [(0, rows)]
    while waiting:
        first, count = waiting.pop()
        try:
            attempt(first, count)
        except failure as error:
            if count == 1:
                failed[first] = error
            else:
                half = count // 2
                waiting += [(first, half), (first + half, count - half)]
    return failed


T = TypeVar("T")

SCHEMAS_PER_TABLE_MAX = 8
"""A table's schemas come one after the other; a replay goes through the old ones once."""


class BySchema(Generic[T]):
    """A schema cannot be hashed, but most often it is the very object of the batch before."""

    def __init__(self, work_out: Callable[[TableSchema], T]) -> None:
        self._work_out = work_out
        self._known: dict[TableId, list[tuple[TableSchema, T]]] = {}

    def of(self, schema: TableSchema) -> T:
        known = self._known.setdefault(schema.table, [])
        for place, (seen, result) in enumerate(known):
            if seen is schema or seen == schema:
                if place:
                    known.insert(0, known.pop(place))
                return result
        result = self._work_out(schema)
        known.insert(0, (schema, result))
        del known[SCHEMAS_PER_TABLE_MAX:]
        return result
