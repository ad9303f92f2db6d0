"""Remembers what has been worked out for a table's schema, since batches of it keep coming."""

from collections.abc import Callable
from typing import Generic, TypeVar

from headwater.core_log.model.table_schema import TableId, TableSchema

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
