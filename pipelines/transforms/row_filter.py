"""Lets only rows pass that fulfil a condition, and takes back those that no longer do."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.transforms.expressions import (
    MS_MAX,
    ExpressionFailed,
    Expressions,
    PreparedQuery,
)
from headwater.pipelines.transforms.rows import is_operation, rejection

DELETE = pa.scalar(int(Operation.DELETE), pa.uint8())


class Filter:
    """Deletes always pass: whether the row that goes had passed is no longer known."""

    def __init__(
        self, text: str, schema: TableSchema, expressions: Expressions, *, ms_max: int = MS_MAX
    ) -> None:
        self.schema = schema
        self._condition = expressions.prepare(
            {"filter": text}, schema, what="filter", ms_max=ms_max
        )
        if not pa.types.is_boolean(self._condition.types["filter"]):
            raise ConfigError(
                "the filter is not a condition",
                hint="write a comparison, such as status <> 'draft'",
                table=str(schema.table),
                filter=text,
                type=str(self._condition.types["filter"]),
            )

    def apply(self, changes: TableChanges) -> TableChanges:
        return self.sift(changes, takes_back_all=False)

    def sift(self, changes: TableChanges, *, takes_back_all: bool) -> TableChanges:
        """With `takes_back_all` every row that does not pass is deleted, not only changed ones:
        needed where a target may hold rows whose deletes nobody reads any more."""
        goes = is_operation(changes, Operation.DELETE)
        passes = pc.or_(answers_of(self._condition, changes, goes)[0].fill_null(False), goes)
        if pc.all(passes, min_count=0).as_py():
            return changes
        left = pc.invert(passes)
        if not takes_back_all:
            had_row = is_operation(changes, Operation.UPDATE, Operation.REREAD)
            left = pc.and_(left, had_row)
        if not changes.schema.key or not pc.any(left).as_py():
            return changes.filter(passes)
        return _taken_back(changes, passes, left)


def answers_of(
    expressions: PreparedQuery, changes: TableChanges, goes: pa.BooleanArray
) -> list[pa.Array]:
    """Of deletes only the key is sure to be there: what cannot be computed of them is null."""
    try:
        return expressions.evaluate(changes.rows)
    except ExpressionFailed as unanswered:
        reasons = unanswered.reasons
    blamed = {row: reason for row, reason in reasons.items() if not goes[row].as_py()}
    if blamed:
        raise rejection("an expression cannot be computed", changes, blamed)
    return expressions.evaluate_or_null(changes.rows)


def _taken_back(
    changes: TableChanges, passes: pa.BooleanArray, left: pa.BooleanArray
) -> TableChanges:
    """Those that pass, and those that left as deletes, of which no more is told than of others:
    the key."""
    mask = pc.if_else(left, pa.scalar(None, pa.bool_()), passes)
    hidden = changes.rows.filter(mask, null_selection_behavior="emit_null")
    kept = pc.or_(passes, left)
    taken = replace(changes, rows=changes.keys).filter(kept)
    columns = [
        taken.rows.column(name) if name in changes.schema.key else hidden.column(name)
        for name in changes.schema.names
    ]
    return replace(
        taken,
        rows=pa.RecordBatch.from_arrays(columns, schema=changes.rows.schema),
        operations=pc.if_else(left.filter(kept), DELETE, taken.operations),
    )
