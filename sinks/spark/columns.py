"""Arrow columns through Python functions on Spark's executors."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

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
    """Before each task Spark's workers read anew what every archive on their path holds, that with
    all of PySpark among them. It takes as long as a small task does, and none ever changes."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = _nothing  # type: ignore[method-assign]


def _nothing() -> None:
    pass


def map_arrow(
    frame: "DataFrame", function: ArrowFunction, schema: "str | StructType"
) -> "DataFrame":
    """`DataFrame.mapInArrow`, which would ask for pandas and then not use it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    task = _Task(function)
    wrapped = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = wrapped(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
