"""The executors' part of work in Spark: log to newest changes, and these to new files."""

# Spark moves whole Arrow batches as values of one binary column. Splitting them into Spark rows,
# sorting those and joining them again costs several times as much as all the rest.

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.fold import counting
from headwater.sinks.object_names import OP
from headwater.sinks.sink import ChangeCount, Heard, SplitReader
from headwater.sinks.spark.file_rewrite import EPOCH, FileRewrite, Truncates
from headwater.sinks.spark.key_ranges import DataFile, KeyRange, assign
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.merge import MergeStep, are_rereads
from headwater.sinks.spark.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

WRITTEN = pa.schema([("cell", pa.int32()), ("files", pa.string()), ("counts", pa.binary())])
WRITTEN_DDL = "cell int, files string, counts binary"
SHAPES = pa.schema(
    [("topic", pa.string()), ("part", pa.int32()), ("at", pa.int64()), ("shape", pa.binary())]
)
SHAPES_DDL = "topic string, part int, at bigint, shape binary"
DIVIDED = pa.schema([("cell", pa.int32()), ("rows", pa.binary()), ("counts", pa.binary())])
DIVIDED_DDL = "cell int, rows binary, counts binary"
"""A Spark row with either rows or counts. Counts travel with the data, so a task that ran twice
counts once."""
NO_CELL = -1
"""The number of a Spark row that has only counts."""
NEW, REREAD = 0, 1
"""The number of a Spark row with files of changes, and of one with files of re-read rows."""
NO_TRUNCATES = Truncates()
HELD_BYTES_MAX = 192 << 20
"""Bytes of changes that a task keeps at most to find the newest of each key."""
PARCEL_BYTES = 4 << 20
"""Bytes of rows that travel as one value, about, before compression."""
PACKING = pa.ipc.IpcWriteOptions(compression="lz4")
"""Compressed, because every byte of a value is moved many times on its way through Spark."""
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
NumberedCell = tuple[int, KeyRange, Sequence[MergeStep]]
"""A key range, with the changes in it."""


class UnknownSchema(Exception):
    """Executors met changes of a schema that the table was not prepared for."""


@dataclass(frozen=True, slots=True)
class RangePartitioner:
    """Gives each Spark task its numbers and its input, so that Spark needs no shuffle for it."""

    tasks: tuple[bytes, ...]
    """Tasks, pickled one by one because each Spark task needs only its own."""
    function: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(
            pickle.loads(self.tasks[number])
            for batch in batches
            for number in batch.column(0).to_pylist()
        )


@dataclass(frozen=True, slots=True)
class DivideSplits:
    """Reads splits of the log and returns the newest changes by key range.

    One change of each key is left per task, or a few if there are very many.
    """

    reader: SplitReader
    layout: LakeTableLayout
    schemas: tuple[TableSchema, ...]
    """Schemas for which the layout was made."""
    cells: tuple[KeyRange, ...]
    truncates: Truncates = NO_TRUNCATES

    def __call__(self, splits: Iterator[Split]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            held, counts = TaskBuffer(self.layout, self.cells), list[ChangeCount]()
            for changes in _of_split(self.reader, split, self.schemas, counts.extend):
                if changes.is_truncate:
                    continue
                held.add(self._events(changes))
                if held.bytes > HELD_BYTES_MAX:
                    held.fold()
                    if held.bytes > HELD_BYTES_MAX // 2:
                        yield from held.divide()
            yield from held.divide()
            if counts:
                columns = [pa.array([0], pa.int32()), pa.nulls(1, pa.binary()), _pack(counts)]
                yield pa.RecordBatch.from_arrays(columns, schema=DIVIDED)

    def _events(self, changes: TableChanges) -> pa.RecordBatch:
        events = self.layout.conform(changes)
        return self.truncates.add_epochs(events, changes, self.layout) if self.truncates else events


@dataclass(slots=True)
class TaskBuffer:
    """Changes in log order; for mirrors, only the newest of each key are kept."""

    layout: LakeTableLayout
    cells: Sequence[KeyRange]
    bytes: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.bytes += batch.nbytes

    def fold(self) -> None:
        places = self._counting()
        if places is not None:
            self._batches = [batch.take(pa.array(at)) for batch, at, _ in self._choose(places)]
        self.bytes = sum(batch.nbytes for batch in self._batches)

    def divide(self) -> Iterator[pa.RecordBatch]:
        """Returns the newest changes in chunks by key range.

        Each part is split by itself: little data is moved, and readers of chunks need not wait for
        the last one.
        """
        places = self._counting()
        if places is None:
            places = np.arange(sum(map(len, self._batches)))
        waiting: list[list[pa.RecordBatch]] = [[] for _ in self.cells]
        sizes = [0] * len(self.cells)
        for batch, at, cells in self._choose(places):
            rows = batch.take(pa.array(at[np.argsort(cells, kind="stable")]))
            ends = np.cumsum(np.bincount(cells, minlength=len(self.cells))).tolist()
            for number, (start, end) in enumerate(pairwise([0, *ends])):
                if start == end:
                    continue
                waiting[number].append(rows.slice(start, end - start))
                sizes[number] += waiting[number][-1].nbytes
                if sizes[number] >= PARCEL_BYTES:
                    yield from _parcels(number, waiting[number])
                    waiting[number], sizes[number] = [], 0
        for number, rest in enumerate(waiting):
            if rest:
                yield from _parcels(number, rest)
        self._batches, self.bytes = [], 0

    def _counting(self) -> Int64Array | None:
        """Returns where these keys are; None for all. Keys between two truncates are
        independent."""
        if self.layout.mode == "scd2" or not self._batches:
            return None
        names = [*self.layout.key, *({EPOCH} & set(self._batches[0].schema.names))]
        return counting(
            self.layout.mode,
            pa.concat_batches([batch.select(names) for batch in self._batches]),
            np.concatenate([batch.column(OP) for batch in self._batches]) == Operation.DELETE,
            ignores_deletes=self.layout.ignores_deletes,
        )

    def _choose(
        self, places: Int64Array
    ) -> Iterator[tuple[pa.RecordBatch, Int64Array, Int64Array]]:
        """Yields each part with its rows at these places, and their key ranges."""
        ends = np.cumsum([len(batch) for batch in self._batches])
        cuts = np.searchsorted(places, [0, *ends])
        for batch, end, (first, last) in zip(self._batches, ends, pairwise(cuts), strict=True):
            if first < last:
                at = places[first:last] - (end - len(batch))
                keys = batch.column(self.layout.key[0])
                yield batch, at, assign(keys, self.cells)[at]


def _parcels(number: int, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = pa.concat_batches(batches)
    count = min(max(round(rows.nbytes / PARCEL_BYTES), 1), len(rows))
    ends = [len(rows) * part // count for part in range(count + 1)]
    for start, end in pairwise(ends):
        yield _parcel(number, rows.slice(start, end - start))


def _parcel(number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=PACKING) as stream:
        stream.write_batch(rows)
    content = out.getvalue()
    bounds = pa.py_buffer(np.array([0, content.size], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, content])
    columns = [pa.array([number], pa.int32()), value, pa.nulls(1, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=DIVIDED)


def _pack(counts: Sequence[ChangeCount]) -> pa.BinaryArray:
    return pa.array([pickle.dumps([*counts])], pa.binary())


@dataclass(frozen=True, slots=True)
class RewriteCells:
    """Rewrites key ranges: changes by key range to new files."""

    rewriting: FileRewrite
    cells: tuple[KeyRange, ...]
    truncates: Truncates = NO_TRUNCATES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.rewriting.layout
        held: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            numbers, parcels, counted = batch.columns
            for number, parcel, counts in zip(numbers.to_pylist(), parcels, counted, strict=True):
                if counts.is_valid:
                    yield _write(NO_CELL, (), pickle.loads(counts.as_buffer()))
                    continue
                rows = pa.ipc.open_stream(parcel.as_buffer()).read_next_batch()
                held.setdefault(number, []).append(rows)
        for number in sorted(held):
            events = pa.Table.from_batches(held.pop(number))
            steps = self.truncates.between(events, layout) if self.truncates else [events]
            yield _write(number, self.rewriting.cell(self.cells[number], steps))


@dataclass(frozen=True, slots=True)
class RewriteTasks:
    """Rewrites key ranges whose changes are given."""

    rewriting: FileRewrite

    def __call__(self, tasks: Iterator[NumberedCell]) -> Iterator[pa.RecordBatch]:
        for number, cell, steps in tasks:
            yield _write(number, self.rewriting.cell(cell, steps))


@dataclass(frozen=True, slots=True)
class AppendSplits:
    """Writes all changes of splits to files, each of about the wanted size."""

    reader: SplitReader
    rewriting: FileRewrite
    schemas: tuple[TableSchema, ...]
    truncates: Truncates = NO_TRUNCATES

    def __call__(self, splits: Iterator[Split]) -> Iterator[pa.RecordBatch]:
        layout = self.rewriting.layout
        held, counts = list[pa.RecordBatch](), list[ChangeCount]()
        rows = 0
        for split in splits:
            for changes in _of_split(self.reader, split, self.schemas, counts.extend):
                # Without a key every row counts, and a truncate is one row.
                is_one = changes.is_truncate and not layout.key
                if is_one and not self.truncates.stands_for_all(changes):
                    continue
                held.append(layout.conform(changes))
                rows += len(changes)
                if rows >= layout.file_rows:
                    yield from self._write(held)
                    held, rows = [], 0
        if rows:
            yield from self._write(held)
        if counts:
            yield _write(NO_CELL, (), counts)

    def _write(self, held: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Writes re-read rows to files of their own, which the driver compares."""
        events = pa.Table.from_batches(held)
        again = are_rereads(events, self.rewriting.layout)
        for number, mask in ((NEW, ~again), (REREAD, again)):
            if mask.any():
                rows = events.filter(pa.array(mask))
                yield _write(number, self.rewriting.append_all(rows))


@dataclass(frozen=True, slots=True)
class ReadSchemas:
    """Returns the schemas of the changes in splits of the log."""

    reader: SplitReader

    def __call__(self, splits: Iterator[Split]) -> Iterator[pa.RecordBatch]:
        before: TableSchema | None = None
        for split in splits:
            for changes in _of_split(self.reader, split, None):
                if changes.schema == before:
                    continue
                before, part, offsets = changes.schema, changes.log_partition, changes.log_offsets
                assert part is not None and offsets is not None, (
                    "changes that were read have a log position"
                )
                columns = [[part.topic], [part.partition], [offsets[0]], [pickle.dumps(before)]]
                arrays = [
                    pa.array(each, kind.type) for each, kind in zip(columns, SHAPES, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=SHAPES)


def _of_split(
    reader: SplitReader,
    split: Split,
    schemas: Sequence[TableSchema] | None,
    heard: Heard = lambda _: None,
) -> Iterator[TableChanges]:
    """Raises `UnknownSchema` for changes of schemas other than the expected ones."""
    for changes in reader.read(split.starts, split.ends, heard):
        if schemas is not None and changes.schema not in schemas:
            raise UnknownSchema
        if len(changes):
            yield changes


def _write(
    number: int, files: Sequence[DataFile], counts: Sequence[ChangeCount] = ()
) -> pa.RecordBatch:
    written = json.dumps([asdict(each) for each in files])
    counted = _pack(counts) if counts else pa.nulls(1, pa.binary())
    columns = [pa.array([number], pa.int32()), pa.array([written]), counted]
    return pa.RecordBatch.from_arrays(columns, schema=WRITTEN)


def read_file(fields: Mapping[str, Any]) -> DataFile:
    """Returns a file from a task's report."""
    return DataFile(**{**fields, "partition": tuple(fields["partition"])})


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
            finder.invalidate_caches = lambda: None  # type: ignore[method-assign]


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
