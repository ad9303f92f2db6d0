"""Arrow columns through Python functions on Spark's executors."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import may_rename
from headwater.sinks.spark.layout import REBUILD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Task:
    function: ArrowFunction

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archives()
        return self.function(batches)


def keep_archives() -> None:
    """Spark's workers read every archive on their path again before each task, PySpark included.
    That takes as long as a small task, and archives never change."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = _nothing  # type: ignore[method-assign]


def _nothing() -> None:
    pass


def map_arrow(
    frame: "DataFrame", function: ArrowFunction, schema: "str | StructType"
) -> "DataFrame":
    """Works as `DataFrame.mapInArrow`, which requires pandas without using it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    task = _Task(function)
    wrapped = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = wrapped(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


@dataclass(slots=True)
class AlteredColumns:
    """Columns followed through the layouts of an offset range, starting at the table's files."""

    held: ColumnIds
    renamed: dict[str, str] = field(default_factory=dict)
    """Current names to the names in the files."""
    filled: dict[str, Column] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    """Names in the files that belong to no column now, or to another one."""

    def rename(
        self,
        schema: TableSchema,
        present: pa.Schema,
        *,
        policy: Mapping[str, str],
        partition_by: Collection[str],
    ) -> pa.Schema:
        """Returns the table's columns, under their names in this layout."""
        renames = self.held.find_renames(schema, _same(schema)) if may_rename(policy) else {}
        renames = {old: new for old, new in renames.items() if old in present.names}
        kept = self.held.find_kept(schema)
        taken = {new for new in renames.values() if new in present.names and new not in renames}
        for old, new in renames.items():
            is_taken, divides = new in taken & kept, {old, new} & {*partition_by}
            if is_taken or divides:
                raise RebuildNeeded(
                    "a column cannot be renamed in place",
                    table=str(schema.table),
                    column=old,
                    becomes=new,
                    why="it divides the table" if divides else "the name is taken",
                    hint=REBUILD,
                )
        filled = {name: each for name, each in self.filled.items() if name not in taken}
        self.filled = {renames.get(name, name): each for name, each in filled.items()}
        for name in taken:
            self.renamed.pop(name, None)
        in_files = {new: self.renamed.pop(old, old) for old, new in renames.items()}
        self.renamed |= {new: old for new, old in in_files.items() if new not in self.filled}
        self.left |= set(renames) - set(renames.values())
        return pa.schema(
            [
                each.with_name(renames.get(each.name, each.name))
                for each in present
                if each.name not in taken  # readers of the log do not have its values either
            ]
        )

    def learn(self, schema: TableSchema, *, skipped: Collection[str], is_new: bool) -> None:
        """Takes over the columns of this layout; `is_new`: the table had no files before."""
        names = {name: name for name in schema.names if name not in skipped}
        if not is_new:
            self.filled |= self.held.find_fills(schema, names)
        self.held = self.held.with_schema(schema, names)


def _same(schema: TableSchema) -> dict[str, str]:
    return {name: name for name in schema.names}
