"""What executors of Spark do: the log to changes that count, and these to new files of cells."""

# Spark moves whole batches of Arrow as values of one binary column. Taking them apart into rows of
# its own, sorting those and putting them together again costs several times what all the rest does.

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.fold import counting
from headwater.sinks.sink import ChangeCount, Heard, SplitReader
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import DataFile, KeyRange, assign
from headwater.sinks.spark.layout import OP, LakeTableLayout
from headwater.sinks.spark.merge import MergeStep
from headwater.sinks.spark.reader.splits import Split
from headwater.sinks.spark.truncate_epochs import EPOCH, Truncates

WRITTEN = pa.schema([("cell", pa.int32()), ("files", pa.string()), ("counts", pa.binary())])
WRITTEN_DDL = "cell int, files string, counts binary"
SHAPES = pa.schema(
    [("topic", pa.string()), ("part", pa.int32()), ("at", pa.int64()), ("shape", pa.binary())]
)
SHAPES_DDL = "topic string, part int, at bigint, shape binary"
DIVIDED = pa.schema([("cell", pa.int32()), ("rows", pa.binary()), ("counts", pa.binary())])
DIVIDED_DDL = "cell int, rows binary, counts binary"
"""Either rows or counts: these travel with the data, so that what a task has done twice counts
once."""
NO_CELL = -1
"""Where only counts are told."""
NO_TRUNCATES = Truncates()
HELD_BYTES_MAX = 192 << 20
"""Of changes that a task keeps in order to find out which are the newest of their keys."""
PARCEL_BYTES = 4 << 20
"""Of rows that travel as one value, about, before they are packed."""
PACKING = pa.ipc.IpcWriteOptions(compression="lz4")
"""Every byte of a value is moved many times on its way through Spark."""
NumberedCell = tuple[int, KeyRange, Sequence[MergeStep]]
"""With the changes that fall into it."""


class UnknownSchema(Exception):
    """Executors met changes under a schema for which the table was not made ready."""


@dataclass(frozen=True, slots=True)
class RangePartitioner:
    """Each task of Spark is given numbers, and has with it what stands under them: no step of
    Spark's is needed to bring it there."""

    tasks: tuple[bytes, ...]
    """Pickled one by one, since a task wants its own alone."""
    function: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.function(
            pickle.loads(self.tasks[number])
            for batch in batches
            for number in batch.column(0).to_pylist()
        )


@dataclass(frozen=True, slots=True)
class DivideSplits:
    """Splits of the log to the changes that count, by the cells that they fall into. Of a key
    with very many changes one is left per task, or few."""

    reader: SplitReader
    layout: LakeTableLayout
    schemas: tuple[TableSchema, ...]
    """For which the layout was made."""
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
    """Changes in the order of the log; of these, those that the table could show where that is
    enough."""

    layout: LakeTableLayout
    cells: Sequence[KeyRange]
    bytes: int = 0
    _pieces: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, piece: pa.RecordBatch) -> None:
        self._pieces.append(piece)
        self.bytes += piece.nbytes

    def fold(self) -> None:
        places = self._counting()
        if places is not None:
            self._pieces = [piece.take(pa.array(at)) for piece, at, _ in self._choose(places)]
        self.bytes = sum(piece.nbytes for piece in self._pieces)

    def divide(self) -> Iterator[pa.RecordBatch]:
        """All that counts of it, by cells, in parcels. Each piece is taken apart by itself, so that
        nothing is moved far, and those who take parcels need not wait for the last one."""
        places = self._counting()
        if places is None:
            places = np.arange(sum(map(len, self._pieces)))
        waiting: list[list[pa.RecordBatch]] = [[] for _ in self.cells]
        sizes = [0] * len(self.cells)
        for piece, at, cells in self._choose(places):
            rows = piece.take(pa.array(at[np.argsort(cells, kind="stable")]))
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
        self._pieces, self.bytes = [], 0

    def _counting(self) -> Int64Array | None:
        """Where they are; None for all. Between two truncates, each key stands for itself."""
        if self.layout.mode == "scd2" or not self._pieces:
            return None
        names = [*self.layout.key, *({EPOCH} & set(self._pieces[0].schema.names))]
        return counting(
            self.layout.mode,
            pa.concat_batches([piece.select(names) for piece in self._pieces]),
            np.concatenate([piece.column(OP) for piece in self._pieces]) == Operation.DELETE,
            ignores_deletes=self.layout.ignores_deletes,
        )

    def _choose(
        self, places: Int64Array
    ) -> Iterator[tuple[pa.RecordBatch, Int64Array, Int64Array]]:
        """Each piece with those of its rows that are at these places, and the cells of these."""
        ends = np.cumsum([len(piece) for piece in self._pieces])
        cuts = np.searchsorted(places, [0, *ends])
        for piece, end, (first, last) in zip(self._pieces, ends, pairwise(cuts), strict=True):
            if first < last:
                at = places[first:last] - (end - len(piece))
                keys = piece.column(self.layout.key[0])
                yield piece, at, assign(keys, self.cells)[at]


def _parcels(number: int, pieces: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = pa.concat_batches(pieces)
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
    """Changes by their cells to new files of these cells."""

    rewriting: FileRewrite
    cells: tuple[KeyRange, ...]
    truncates: Truncates = NO_TRUNCATES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.rewriting.layout
        held: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            numbers, parcels, told = batch.columns
            for number, parcel, counts in zip(numbers.to_pylist(), parcels, told, strict=True):
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
    """Cells with their changes to new files of these cells."""

    rewriting: FileRewrite

    def __call__(self, tasks: Iterator[NumberedCell]) -> Iterator[pa.RecordBatch]:
        for number, cell, steps in tasks:
            yield _write(number, self.rewriting.cell(cell, steps))


@dataclass(frozen=True, slots=True)
class AppendSplits:
    """Splits of the log to files of all their changes, each of about the wanted size."""

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
                # Without a key every row counts, and a truncate is one.
                is_one = changes.is_truncate and not layout.key
                if is_one and not self.truncates.stands_for_all(changes):
                    continue
                held.append(layout.conform(changes))
                rows += len(changes)
                if rows >= layout.file_rows:
                    yield self._write(held)
                    held, rows = [], 0
        if rows:
            yield self._write(held)
        if counts:
            yield _write(NO_CELL, (), counts)

    def _write(self, held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return _write(0, self.rewriting.append(pa.Table.from_batches(held)))


@dataclass(frozen=True, slots=True)
class ReadSchemas:
    """Splits of the log to the schemas of their changes."""

    reader: SplitReader

    def __call__(self, splits: Iterator[Split]) -> Iterator[pa.RecordBatch]:
        before: TableSchema | None = None
        for split in splits:
            for changes in _of_split(self.reader, split, None):
                if changes.schema == before:
                    continue
                before, part, offsets = changes.schema, changes.log_partition, changes.log_offsets
                assert part is not None and offsets is not None, "what was read knows its place"
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
    """Raises `UnknownSchema` for changes under other schemas than were expected."""
    for changes in reader.read(split.starts, split.ends, heard):
        if schemas is not None and changes.schema not in schemas:
            raise UnknownSchema
        if len(changes):
            yield changes


def _write(
    number: int, files: Sequence[DataFile], counts: Sequence[ChangeCount] = ()
) -> pa.RecordBatch:
    said = json.dumps([asdict(each) for each in files])
    told = _pack(counts) if counts else pa.nulls(1, pa.binary())
    columns = [pa.array([number], pa.int32()), pa.array([said]), told]
    return pa.RecordBatch.from_arrays(columns, schema=WRITTEN)


def read_file(said: Mapping[str, Any]) -> DataFile:
    """A file as a task has told of it."""
    return DataFile(**{**said, "partition": tuple(said["partition"])})
