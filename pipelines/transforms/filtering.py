"""Lets only rows pass that fulfil a condition, and takes back those that no longer do."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from core_log.changes import Operation, TableChanges
from core_log.errors import ConfigError
from core_log.table_schema import TableSchema
from pipelines.transforms.errors import rejection
from pipelines.transforms.expressions import Expressions, Unanswered
from pipelines.transforms.rows import is_operation

DELETE = pa.scalar(int(Operation.DELETE), pa.uint8())


class Filter:
    """Deletes always pass: whether the row that goes had passed is no longer known."""

    def __init__(self, text: str, schema: TableSchema, expressions: Expressions) -> None:
        self.schema = schema
        self._condition = expressions.prepare({"filter": text}, schema)
        if not pa.types.is_boolean(self._condition.types["filter"]):
            raise ConfigError(
                "a filter is a condition, and this is none",
                hint="write a comparison, such as status <> 'draft'",
                table=str(schema.table),
                filter=text,
                type=str(self._condition.types["filter"]),
            )

    def apply(self, changes: TableChanges) -> TableChanges:
        return self.sift(changes, takes_back_all=False)

    def sift(self, changes: TableChanges, *, takes_back_all: bool) -> TableChanges:
        """With `takes_back_all` every row that does not pass is deleted, not only updated ones:
        needed where a target may hold rows whose deletes nobody reads any more."""
        goes = is_operation(changes, Operation.DELETE)
        passes = pc.or_(self._passes(changes, goes), goes)
        if pc.all(passes, min_count=0).as_py():
            return changes
        left = pc.invert(passes)
        if not takes_back_all:
            left = pc.and_(left, is_operation(changes, Operation.UPDATE))
        if not changes.schema.key or not pc.any(left).as_py():
            return changes.filter(passes)
        return _taken_back(changes, left).filter(pc.or_(passes, left))

    def _passes(self, changes: TableChanges, goes: pa.BooleanArray) -> pa.BooleanArray:
        """Of deletes only the key is sure to be there, so they are not looked at."""
        if not pc.any(goes).as_py():
            return self._fulfil(changes)
        asked = pc.indices_nonzero(pc.invert(goes))
        passing = asked.filter(self._fulfil(changes.take(asked)))
        return pc.is_in(pa.array(range(len(changes)), passing.type), value_set=passing)

    def _fulfil(self, changes: TableChanges) -> pa.BooleanArray:
        """As in SQL, what is not known to be true is not."""
        try:
            [answers] = self._condition.evaluate(changes.rows)
        except Unanswered as unanswered:
            raise rejection("a filter cannot be answered", changes, unanswered.reasons) from None
        return answers.fill_null(False)


def _taken_back(changes: TableChanges, left: pa.BooleanArray) -> TableChanges:
    """Those rows as deletes, of which no more is told than of others: the key."""
    columns = [
        column
        if name in changes.schema.key
        else pc.if_else(left, pa.scalar(None, column.type), column)
        for name, column in zip(changes.schema.names, changes.rows.columns, strict=True)
    ]
    return replace(
        changes,
        rows=pa.RecordBatch.from_arrays(columns, schema=changes.rows.schema),
        operations=pc.if_else(left, DELETE, changes.operations),
    )
