"""The driver's part of work in Spark: plans tasks and collects their results."""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.core_log.foundation.disk_space import HINT, said_no_room
from headwater.core_log.foundation.errors import DiskFull, SinkRejected, SinkUnavailable
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import AppliedOffsets, ChangeCount, SplitReader
from headwater.sinks.spark.executor_tasks import (
    DIVIDED_DDL,
    NEW,
    NO_CELL,
    NO_TRUNCATES,
    REREAD,
    SHAPES_DDL,
    WRITTEN_DDL,
    AppendSplits,
    DivideSplits,
    RangePartitioner,
    ReadSchemas,
    RewriteCells,
    RewriteTasks,
    UnknownSchema,
    map_arrow,
    read_file,
)
from headwater.sinks.spark.file_rewrite import CellSteps, FileRewrite, PreparedFiles, Truncates
from headwater.sinks.spark.key_ranges import DataFile, KeyRange, cells_of, has_ranges, split_large
from headwater.sinks.spark.lake_table_writer import SchemasChanged
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.splits import Split, splits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SAMPLE_POINTS, SAMPLE_RECORDS = 8, 500
LASTING = ("SinkRejected", "SchemaRefused", "TableFailed")
"""Errors that a second attempt of the same task would meet again, such as a damaged file."""
LARGEST = 2
"""A task holds at most about this many times the wanted file size."""
SPLIT_ROWS_MIN = 50_000
"""Fewer records than this are not split only to give every core a part."""


class BadRecords(Exception):
    """Executors met records that must be rejected by name; reading them in this process names
    them."""


class SparkWork:
    """Work of one slice that Spark does.

    No row passes through this process, except a small sample of the keys.
    """

    def __init__(
        self,
        session: "Callable[[], SparkSession]",
        reader: SplitReader,
        newest: TableSchema,
        *,
        start: AppliedOffsets,
        end: AppliedOffsets,
        bounds: Mapping[TopicPartition, Bounds],
        split_rows: int,
        truncates: Truncates = NO_TRUNCATES,
    ) -> None:
        """`newest` is the schema that most changes probably have."""
        self._session, self._reader = session, reader
        self._start, self._end, self._bounds = start, end, bounds
        self._split_rows, self._truncates = split_rows, truncates
        self._schemas: Sequence[TableSchema] = (newest,)

    def schemas(self) -> Sequence[TableSchema]:
        return self._schemas

    def prepare(
        self, rewriting: FileRewrite, files: Sequence[DataFile], *, all_files: bool
    ) -> PreparedFiles:
        with alive():
            spark = self._session()
            splits = self.splits(_cores(spark))
            try:
                if rewriting.layout.mode == "append":
                    return self._append(spark, splits, rewriting, files, all_files=all_files)
                return self._rewrite(spark, splits, rewriting, files, all_files=all_files)
            except UnknownSchema:
                self._schemas = self._look(spark, splits)
                raise SchemasChanged from None

    def splits(self, cores: int) -> list[Split]:
        """Returns splits of the log.

        There are as few as there are cores, because a task merges what it reads. If that is too
        much for one task, there are so many that no core waits for the others at the end.
        """
        rows = sum(
            applied.next_offset - self._start[part].next_offset
            for part, applied in self._end.items()
        )
        per_core = max(-(-rows // (self._split_rows * cores)), 1)
        records = max(-(-rows // (per_core * cores)), SPLIT_ROWS_MIN)
        records = min(self._split_rows, records)
        return splits_of(self._start, self._end, self._bounds, records=records)

    def changes(
        self,
        spark: "SparkSession",
        splits: Sequence[Split],
        layout: LakeTableLayout,
        cells: Sequence[KeyRange],
    ) -> "DataFrame":
        """Returns the newest changes in chunks, those of one key range together."""
        schemas, truncates = tuple(self._schemas), self._truncates
        read = DivideSplits(self._reader, layout, schemas, tuple(cells), truncates)
        parcels = _spread(spark, splits, read, DIVIDED_DDL)
        return parcels.repartitionById(len(cells), "cell")

    def _rewrite(
        self,
        spark: "SparkSession",
        splits: Sequence[Split],
        rewriting: FileRewrite,
        files: Sequence[DataFile],
        *,
        all_files: bool,
    ) -> PreparedFiles:
        layout = rewriting.layout
        emptied = files if self._truncates.emptied_by(layout) else ()
        left = self._truncates.remaining(layout)
        cells = self._cells(splits, layout, () if emptied else files, cores=_cores(spark))
        changes = self.changes(spark, splits, layout, cells)
        rewrite = RewriteCells(rewriting, tuple(cells), self._truncates)
        written, counts = collect(map_arrow(changes, rewrite, WRITTEN_DDL))
        touched = {file for number in written for file in cells[number].files} | set(emptied)
        if all_files or left:
            touched |= set(files)
        missed = [
            number
            for number, cell in enumerate(cells)
            if number not in written and not touched.isdisjoint(cell.files)
        ]
        # Parts of a key range share its files: a part without changes is rewritten all the same.
        for number in missed:
            written[number] = rewriting.cell(cells[number], left)
        return PreparedFiles(
            added=[file for mine in written.values() for file in mine],
            removed=[file for file in files if file in touched],
            counts=counts,
        )

    def _append(
        self,
        spark: "SparkSession",
        splits: Sequence[Split],
        rewriting: FileRewrite,
        files: Sequence[DataFile],
        *,
        all_files: bool,
    ) -> PreparedFiles:
        append = AppendSplits(self._reader, rewriting, tuple(self._schemas), self._truncates)
        written, counts = collect(_spread(spark, splits, append, WRITTEN_DDL))
        added = list(written.get(NEW, ()))
        if again := written.get(REREAD):
            added += rewriting.append_news(again, beside=[*files, *added])
        if not all_files:
            return PreparedFiles(added, (), counts)
        for each in files:
            added += rewriting.cell(KeyRange(None, None, (each,)), ())
        return PreparedFiles(added, files, counts)

    def _look(self, spark: "SparkSession", splits: Sequence[Split]) -> Sequence[TableSchema]:
        """Returns the schemas of the changes, in the order of their appearance."""
        shapes = _spread(spark, splits, ReadSchemas(self._reader), SHAPES_DDL)
        found: list[TableSchema] = []
        for row in sorted(rows_of(shapes), key=lambda row: (row["topic"], row["part"], row["at"])):
            schema: TableSchema = pickle.loads(row["shape"])
            if not found or found[-1] != schema:
                found.append(schema)
        return found

    def _cells(
        self,
        splits: Sequence[Split],
        layout: LakeTableLayout,
        files: Sequence[DataFile],
        *,
        cores: int,
    ) -> list[KeyRange]:
        cells = cells_of(files)
        rows = sum(each.end - each.start for each in splits)
        kind = layout.columns.field(layout.key[0]).type
        rows_max = layout.file_rows * LARGEST
        if not has_ranges(kind) or rows + max(cell.rows for cell in cells) <= rows_max:
            return cells
        sample = self._sample(splits, layout)
        return split_large(cells, sample, rows=rows, rows_max=rows_max, cores=cores)

    def _sample(self, splits: Sequence[Split], layout: LakeTableLayout) -> pa.Array:
        """Returns keys from evenly spread places of the offset range."""
        key = layout.key[0]
        found = [pa.array([], layout.columns.field(key).type)]
        for part in _points(splits):
            found += [
                layout.conform(changes).column(key)
                for changes in self._reader.read(part.starts, part.ends)
                if not changes.is_truncate
            ]
        return pa.concat_arrays(found)


def _points(splits: Sequence[Split]) -> list[Split]:
    """Returns a few records each, at equal distances."""
    total, found, before = sum(each.end - each.start for each in splits), list[Split](), 0
    for split in splits:
        length = split.end - split.start
        for point in range(SAMPLE_POINTS):
            place = (2 * point + 1) * total // (2 * SAMPLE_POINTS) - before
            if 0 <= place < length:
                start = split.start + place
                end = min(start + SAMPLE_RECORDS, split.end)
                found.append(Split(split.partition, split.topic_id, start, end))
        before += length
    return found


def _cores(spark: "SparkSession") -> int:
    return spark.sparkContext.defaultParallelism


def _spread(
    spark: "SparkSession",
    tasks: Sequence[Any],
    function: Callable[[Iterator[Any]], Iterator[pa.RecordBatch]],
    schema: str,
) -> "DataFrame":
    """Returns one Spark task for each of them."""
    count = max(len(tasks), 1)
    numbers = spark.range(0, len(tasks), 1, count)
    return map_arrow(numbers, RangePartitioner(tuple(map(pickle.dumps, tasks)), function), schema)


def rewrite_elsewhere(
    session: "Callable[[], SparkSession]", rewriting: FileRewrite, of_cells: CellSteps
) -> list[list[DataFile]]:
    """Merges changes of this process into key ranges whose rewrite is left to executors."""
    with alive():
        numbered = [(at, *each) for at, each in enumerate(of_cells.items())]
        written, _ = collect(_spread(session(), numbered, RewriteTasks(rewriting), WRITTEN_DDL))
    return [written.get(at, []) for at in range(len(of_cells))]


def collect(written: "DataFrame") -> tuple[dict[int, list[DataFile]], list[ChangeCount]]:
    """Returns the files that the tasks have written and read, by the number of the key range."""
    found: dict[int, list[DataFile]] = {}
    counts: list[ChangeCount] = []
    for row in rows_of(written):
        if row["counts"] is not None:
            counts += pickle.loads(row["counts"])
        if row["cell"] != NO_CELL:
            files = json.loads(row["files"])
            found.setdefault(row["cell"], []).extend(read_file(each) for each in files)
    return found, counts


def rows_of(frame: "DataFrame") -> "list[Row]":
    """Returns all rows; errors of the tasks become errors of ours."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return frame.collect()
    except (PySparkException, Py4JJavaError) as error:
        message = str(error)
        if UnknownSchema.__name__ in message:
            raise UnknownSchema from None
        if any(name in message for name in ("RecordsRejected", "PositionLost", "TransformFailed")):
            raise BadRecords from error
        if any(name in message for name in LASTING):
            raise SinkRejected("a task of Spark has failed", why=_last_line(message)) from error
        if DiskFull.__name__ in message or said_no_room(message):
            raise DiskFull("the disk is full", hint=HINT, why=_last_line(message)) from error
        raise SinkUnavailable("Spark has failed", why=_last_line(message)) from error


@contextmanager
def alive() -> Iterator[None]:
    """Returns whether Spark's process lives; it may die under any call, and the next session is
    new."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError, EOFError) as error:
        raise SinkUnavailable("the Spark process has died", kind=type(error).__name__) from error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
    return lines[-1][:300] if lines else text[:300]
