"""Changes that Spark reads: parsed on executors, the newest of each key found, files written."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from core_log.changes import TableChanges
from core_log.errors import SinkUnavailable
from core_log.table_schema import TableSchema
from sinks.sink import SplitReader
from sinks.spark.columns import map_arrow
from sinks.spark.kept_table import CellTask, OtherShapes, Prepared
from sinks.spark.keyspace import Bound, Cell, DataFile, cells_of, decimal_of, divided, has_ranges
from sinks.spark.layout import OFFSET, Layout
from sinks.spark.reader.splits import Split
from sinks.spark.rewriting import Rewriting
from sinks.spark.truncates import EPOCH, Truncates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

WRITTEN = pa.schema([("cell", pa.int32()), ("files", pa.string())])
WRITTEN_DDL = "cell int, files string"
SHAPES = pa.schema(
    [("topic", pa.string()), ("part", pa.int32()), ("at", pa.int64()), ("shape", pa.binary())]
)
SHAPES_DDL = "topic string, part int, at bigint, shape binary"
CELL = "_headwater_cell"
SAMPLE_POINTS, SAMPLE_RECORDS = 8, 500
NONE = Truncates()
LARGEST = 2
"""So many times the wanted size of a file one task holds at most, about."""


class UnknownShape(Exception):
    """Executors met changes under a schema for which the table was not made ready."""


class BadRecords(Exception):
    """Executors met records that have to be named; whoever reads them here again will meet them."""


class SparkWork:
    """No row passes through this process, but for a small sample of the keys."""

    def __init__(
        self,
        session: "Callable[[], SparkSession]",
        reader: SplitReader,
        splits: Sequence[Split],
        newest: TableSchema,
        *,
        truncates: Truncates = NONE,
    ) -> None:
        """`newest` is the schema that all changes most likely have."""
        self._session, self._reader, self._splits = session, reader, splits
        self._truncates = truncates
        self._schemas: Sequence[TableSchema] = (newest,)

    def schemas(self) -> Sequence[TableSchema]:
        return self._schemas

    def prepare(
        self, rewriting: Rewriting, files: Sequence[DataFile], *, all_files: bool
    ) -> Prepared:
        try:
            with alive():
                return self._prepare(rewriting, files, all_files=all_files)
        except UnknownShape:
            with alive():
                self._schemas = self._look()
            raise OtherShapes from None

    def _prepare(
        self, rewriting: Rewriting, files: Sequence[DataFile], *, all_files: bool
    ) -> Prepared:
        spark, layout = self._session(), rewriting.layout
        events = self.events(spark, layout)
        if layout.mode == "append":
            return self._append(events, rewriting, files, all_files=all_files)
        emptied = files if self._truncates.emptied_by(layout) else ()
        left = self._truncates.left(layout)
        cells = self._cells(layout, () if emptied else files)
        changed = newest(events, layout) if layout.mode != "scd2" else events
        keyed = changed.withColumn(CELL, _cell_of(changed, layout, cells))
        placed = keyed.repartition(max(len(cells), 1), CELL).sortWithinPartitions(CELL)
        task = RewriteCells(rewriting, tuple(cells), self._truncates)
        written = collect(map_arrow(placed, task, WRITTEN_DDL))
        touched = {file for number in written for file in cells[number].files} | set(emptied)
        if all_files or left:
            touched |= set(files)
        missed = [
            number
            for number, cell in enumerate(cells)
            if number not in written and not touched.isdisjoint(cell.files)
        ]
        # Parts of a cell share its files: what nothing fell into is written anew all the same.
        for number in missed:
            written[number] = rewriting.cell(cells[number], left)
        return Prepared(
            added=[file for mine in written.values() for file in mine],
            removed=[file for file in files if file in touched],
        )

    def events(self, spark: "SparkSession", layout: Layout) -> "DataFrame":
        """All changes, in columns of the table."""
        read = ReadEvents(self._reader, layout, tuple(self._schemas), self._truncates)
        return map_arrow(self._parts(spark), read, ddl_of(read.columns))

    def _parts(self, spark: "SparkSession") -> "DataFrame":
        import pickle

        rows = [(pickle.dumps(each),) for each in self._splits]
        return spark.createDataFrame(rows, "split binary").repartition(max(len(rows), 1))

    def _look(self) -> Sequence[TableSchema]:
        """Under which schemas the changes are, in the order of their coming."""
        import pickle

        shapes = map_arrow(self._parts(self._session()), ReadShapes(self._reader), SHAPES_DDL)
        found: list[TableSchema] = []
        for row in sorted(rows_of(shapes), key=lambda row: (row["topic"], row["part"], row["at"])):
            schema: TableSchema = pickle.loads(row["shape"])
            if not found or found[-1] != schema:
                found.append(schema)
        return found

    def _append(
        self,
        events: "DataFrame",
        rewriting: Rewriting,
        files: Sequence[DataFile],
        *,
        all_files: bool,
    ) -> Prepared:
        written = collect(map_arrow(events, WriteEvents(rewriting), WRITTEN_DDL))
        added = [file for mine in written.values() for file in mine]
        if not all_files:
            return Prepared(added, ())
        for each in files:
            added += rewriting.cell(Cell(None, None, (each,)), ())
        return Prepared(added, files)

    def _cells(self, layout: Layout, files: Sequence[DataFile]) -> list[Cell]:
        cells = cells_of(files)
        rows = sum(each.end - each.start for each in self._splits)
        kind = layout.columns.field(layout.key[0]).type
        rows_max = layout.file_rows * LARGEST
        if not has_ranges(kind) or rows + max(cell.rows for cell in cells) <= rows_max:
            return cells
        return divided(cells, self._sample(layout), rows=rows, rows_max=rows_max)

    def _sample(self, layout: Layout) -> pa.Array:
        """Keys from places all over the stretch."""
        key = layout.key[0]
        found = [pa.array([], layout.columns.field(key).type)]
        count = len(self._splits)
        for point in range(min(SAMPLE_POINTS, count)):
            split = self._splits[point * count // min(SAMPLE_POINTS, count)]
            middle = (split.start + split.end) // 2
            end = min(middle + SAMPLE_RECORDS, split.end)
            part = Split(split.partition, split.topic_id, middle, end)
            found += [
                layout.conform(changes).column(key)
                for changes in self._reader.read(part.starts, part.ends)
                if not changes.is_truncate
            ]
        return pa.concat_arrays(found)


def newest(events: "DataFrame", layout: Layout) -> "DataFrame":
    """The last change of each key. Spark drops all but one per key and task before it shuffles, so
    that a key with very many changes does not matter."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    names = [*layout.key, *({EPOCH} & set(events.columns))]
    by_key = Window.partitionBy(*[events[name] for name in names])
    rank = f.row_number().over(by_key.orderBy(f.desc(OFFSET)))
    name = "_headwater_rank"
    return events.withColumn(name, rank).where(f.col(name) == 1).drop(name)


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Splits of the log to changes in columns of the table."""

    reader: SplitReader
    layout: Layout
    schemas: tuple[TableSchema, ...]
    """For which the layout was made."""
    truncates: Truncates = NONE

    @property
    def columns(self) -> pa.Schema:
        """Of what it makes."""
        events = self.layout.events
        return events.append(pa.field(EPOCH, pa.int32())) if self._has_epochs else events

    @property
    def _has_epochs(self) -> bool:
        return bool(self.truncates) and self.layout.mode != "append"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for changes in _changes(self.reader, batches):
            if changes.schema not in self.schemas:
                raise UnknownShape
            if changes.is_truncate:
                if self.layout.mode == "append" and self.truncates.stands_for_all(changes):
                    yield self.layout.conform(changes)
                continue
            events = self.layout.conform(changes)
            if self._has_epochs:
                events = self.truncates.placed(events, changes, self.layout)
            yield events


@dataclass(frozen=True, slots=True)
class ReadShapes:
    """Splits of the log to the schemas of their changes."""

    reader: SplitReader

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        before: TableSchema | None = None
        for changes in _changes(self.reader, batches):
            if changes.schema != before:
                before, part, offsets = changes.schema, changes.log_partition, changes.log_offsets
                assert part is not None and offsets is not None, "what was read knows its place"
                columns = [[part.topic], [part.partition], [offsets[0]], [pickle.dumps(before)]]
                arrays = [
                    pa.array(each, field.type) for each, field in zip(columns, SHAPES, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=SHAPES)


def _changes(reader: SplitReader, batches: Iterator[pa.RecordBatch]) -> Iterator[TableChanges]:
    import pickle

    for batch in batches:
        for content in batch.column(0).to_pylist():
            split: Split = pickle.loads(content)
            yield from (each for each in reader.read(split.starts, split.ends) if len(each))


@dataclass(frozen=True, slots=True)
class RewriteCells:
    """Changes in the order of their cells to new files of these cells."""

    rewriting: Rewriting
    cells: tuple[Cell, ...]
    truncates: Truncates = NONE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = self.rewriting.layout
        for number, events in _by_cell(batches, layout):
            steps = self.truncates.between(events, layout) if self.truncates else [events]
            yield _written(number, self.rewriting.cell(self.cells[number], steps))


@dataclass(frozen=True, slots=True)
class RewriteTasks:
    """Cells with their changes, each in one row, to new files of these cells."""

    rewriting: Rewriting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        for batch in batches:
            for content in batch.column(0).to_pylist():
                number, cell, steps = pickle.loads(content)
                yield _written(number, self.rewriting.cell(cell, steps))


def rewrite_elsewhere(
    session: "Callable[[], SparkSession]", rewriting: Rewriting, tasks: Sequence[CellTask]
) -> list[list[DataFile]]:
    """Changes that are in this process into cells that are better rewritten by executors."""
    import pickle

    rows = [(pickle.dumps((at, *task)),) for at, task in enumerate(tasks)]
    with alive():
        frame = session().createDataFrame(rows, "task binary").repartition(len(rows))
        written = collect(map_arrow(frame, RewriteTasks(rewriting), WRITTEN_DDL))
    return [written.get(at, []) for at in range(len(tasks))]


@dataclass(frozen=True, slots=True)
class WriteEvents:
    """Changes as they come to files of about the wanted size."""

    rewriting: Rewriting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            held.append(batch)
            rows += batch.num_rows
            if rows >= self.rewriting.layout.file_rows:
                yield self._write(held)
                held, rows = [], 0
        if rows:
            yield self._write(held)

    def _write(self, held: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        schema = self.rewriting.layout.events
        events = pa.Table.from_batches([each.cast(schema) for each in held])
        return _written(0, self.rewriting.appended(events))


def collect(written: "DataFrame") -> dict[int, list[DataFile]]:
    """What the tasks say that they have written, by the number of the cell."""
    found: dict[int, list[DataFile]] = {}
    for row in rows_of(written):
        found.setdefault(row["cell"], []).extend(_file(each) for each in json.loads(row["files"]))
    return found


def rows_of(frame: "DataFrame") -> "list[Row]":
    """All rows; what became of the tasks in our words."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return frame.collect()
    except (PySparkException, Py4JJavaError) as error:
        said = str(error)
        if UnknownShape.__name__ in said:
            raise UnknownShape from None
        if any(name in said for name in ("RecordsRejected", "PositionLost", "TransformFailed")):
            raise BadRecords from error
        raise SinkUnavailable("Spark has failed", why=_last_line(said)) from error


@contextmanager
def alive() -> Iterator[None]:
    """Spark's process may die under any call; the next session then is another one's."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError, EOFError) as error:
        raise SinkUnavailable("Spark's process has died", kind=type(error).__name__) from error


def ddl_of(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _cell_of(frame: "DataFrame", layout: Layout, cells: Sequence[Cell]) -> "Column":
    """A tree of comparisons, since there can be hundreds of cells."""
    from pyspark.sql import functions as f

    key = frame[layout.key[0]]
    kind = layout.columns.field(layout.key[0]).type

    def between(first: int, end: int) -> "Column":
        if end - first == 1:
            return f.lit(first)
        middle = (first + end) // 2
        bound = cells[middle].low
        assert bound is not None, "only the first cell has no lower bound"
        below = key < _literal(bound, kind)
        return f.when(below, between(first, middle)).otherwise(between(middle, end))

    return between(0, len(cells)).cast("int")


def _literal(bound: Bound, kind: pa.DataType) -> "Column":
    from pyspark.sql import functions as f

    if isinstance(bound, str) or pa.types.is_integer(kind):
        return f.lit(bound)
    if pa.types.is_decimal(kind):
        said = f"{decimal_of(bound, kind):f}"
        return f.lit(said).cast(f"decimal({kind.precision},{kind.scale})")
    if pa.types.is_date(kind):
        return f.date_from_unix_date(f.lit(bound))
    assert pa.types.is_timestamp(kind), "times of day are text to Spark"
    if kind.tz is not None:
        return f.timestamp_micros(f.lit(bound))
    # By its text, so that no time zone has a say in it.
    return f.lit(str(pa.scalar(bound, kind).cast(pa.string()))).cast("timestamp_ntz")


def _by_cell(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[tuple[int, pa.Table]]:
    held: list[pa.RecordBatch] = []
    current: int | None = None
    for batch in batches:
        for number, part in _runs(batch):
            if current is not None and number != current:
                yield current, _events(held, layout)
                held = []
            current = number
            held.append(part)
    if current is not None:
        yield current, _events(held, layout)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    import numpy as np

    places = np.asarray(batch.column(CELL))
    ends = [*(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    start = 0
    for end in ends:
        if end > start:
            yield int(places[start]), batch.slice(start, end - start)
        start = end


def _events(held: Sequence[pa.RecordBatch], layout: Layout) -> pa.Table:
    schema = layout.events
    if EPOCH in held[0].schema.names:
        schema = schema.append(pa.field(EPOCH, pa.int32()))
    return pa.Table.from_batches([each.select(schema.names).cast(schema) for each in held])


def _written(number: int, files: Sequence[DataFile]) -> pa.RecordBatch:
    said = json.dumps([asdict(each) for each in files])
    return pa.RecordBatch.from_pydict({"cell": [number], "files": [said]}, schema=WRITTEN)


def _file(said: Mapping[str, Any]) -> DataFile:
    return DataFile(**{**said, "partition": tuple(said["partition"])})


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
    return lines[-1][:300] if lines else text[:300]
