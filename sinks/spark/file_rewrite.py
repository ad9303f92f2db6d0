"""The rewrite of files by changes and truncates: of key ranges, and of a table in this process."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import ChangeCount, Truncate
from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.earlier_changes import find_repeated, without_repeated
from headwater.sinks.spark.key_ranges import DataFile, KeyRange, assign, cells_of, with_gaps
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.merge import (
    MergeStep,
    TruncateStep,
    add_missing,
    are_rereads,
    count_changes,
    fold,
    pick,
    to_append_rows,
)
from headwater.sinks.spark.storage_location import StorageLocation

FILE_BYTES_MIN = 32 << 20
"""Rows of so many bytes, before they are compressed, are worth a file however few they are."""

CellSteps = Mapping[KeyRange, Sequence[MergeStep]]
EPOCH = "_headwater_epoch"
"""The number of truncates before an event."""


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """New files, and the files that they replace."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    counts: Sequence[ChangeCount] = ()
    """Counts of what was read in other processes."""


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """A rewrite of files with all that a task needs to know; it is pickled for executors."""

    place: StorageLocation
    layout: LakeTableLayout
    keeps_partitions: bool = False
    """Whether partition columns are stored in the files too."""

    def cell(self, cell: KeyRange, steps: Sequence[MergeStep]) -> list[DataFile]:
        """Returns the new files of a key range; its former files are to be removed."""
        base = parquet_files.read(self.place, cell, self.layout)
        return self._write(fold(base, steps, self.layout))

    def add_missing(self, cell: KeyRange, rows: pa.Table) -> list[DataFile] | None:
        """Returns the new files with rows whose keys are missing; None if no key is missing."""
        found = add_missing(parquet_files.read(self.place, cell, self.layout), rows, self.layout)
        return None if found is None else self._write(found)

    def append(self, events: pa.Table, *, beside: Sequence[DataFile]) -> list[DataFile]:
        """Returns files of the changes, without re-read rows that `beside` tells already."""
        rows, again = to_append_rows(events), are_rereads(events, self.layout)
        if again.any():
            rows = rows.select(self.layout.schema.names)
            mine = pa.concat_batches(rows.filter(pa.array(again)).to_batches())
            others = rows.filter(pa.array(~again)).to_batches()
            again[again] = find_repeated(self.place, beside, self.layout, mine, others)
            rows = rows.filter(pa.array(~again))
        return self._write(rows) if rows.num_rows else []

    def append_all(self, events: pa.Table) -> list[DataFile]:
        """Returns files of the changes without a merge."""
        return self._write(to_append_rows(events))

    def append_news(
        self, again: Sequence[DataFile], *, beside: Sequence[DataFile]
    ) -> list[DataFile]:
        """Returns files of the re-read rows in `again` whose values are new beside the others."""
        left = without_repeated(self.place, beside, self.layout, again)
        return [file for rows in left for file in self._write(rows)]

    def _write(self, rows: pa.Table) -> list[DataFile]:
        return parquet_files.write(
            self.place,
            rows.select(self.layout.schema.names),
            self.layout,
            keeps_partitions=self.keeps_partitions,
        )


Elsewhere = Callable[[FileRewrite, CellSteps], Sequence[Sequence[DataFile]]]
"""Rewrites key ranges in other processes; returns the new files of each."""


class InProcessWork:
    """Changes in memory, applied in this process by a few threads."""

    def __init__(
        self,
        changes: Sequence[TableChanges],
        *,
        threads: int,
        elsewhere: Elsewhere | None = None,
        rows_max: float = 0,
    ) -> None:
        """Leaves a rewrite of more than `rows_max` rows to `elsewhere`."""
        self._changes, self._threads = changes, threads
        self._elsewhere, self._rows_max = elsewhere, rows_max

    def schemas(self) -> Sequence[TableSchema]:
        found: list[TableSchema] = []
        for each in self._changes:
            if not found or found[-1] != each.schema:
                found.append(each.schema)
        return found

    def prepare(
        self, rewriting: FileRewrite, files: Sequence[DataFile], *, all_files: bool
    ) -> PreparedFiles:
        layout = rewriting.layout
        steps = _steps_of(self._changes, layout)
        if layout.mode == "append":
            return self._append(rewriting, files, steps, all_files=all_files)
        emptied = _emptied_before(steps, layout)
        files_left, steps_left = () if emptied else files, steps[emptied:]
        gone = files if emptied else ()
        is_whole = all_files or any(isinstance(step, TruncateStep) for step in steps_left)
        cells = self._cells(files_left, steps_left, layout)
        of_cells = {
            cell: mine
            for cell, mine in _steps_by_cell(steps_left, cells, layout).items()
            if count_changes(mine) or (is_whole and cell.files)
        }
        if self._elsewhere and sum(cell.rows for cell in of_cells) > self._rows_max:
            written = self._elsewhere(rewriting, of_cells)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                written = list(pool.map(rewriting.cell, of_cells.keys(), of_cells.values()))
        return PreparedFiles(
            added=[file for files in written for file in files],
            removed=[*gone, *(file for cell in of_cells for file in cell.files)],
        )

    def _cells(
        self, files: Sequence[DataFile], steps: Sequence[MergeStep], layout: LakeTableLayout
    ) -> Sequence[KeyRange]:
        """Returns the key ranges to rewrite. Enough rows above all keys of a range get a file of
        their own, without a read of the range's files."""
        cells, events = cells_of(files), [step for step in steps if isinstance(step, pa.Table)]
        rows = sum(step.num_rows for step in events)
        if not files or not rows:
            return cells
        row_bytes = max(sum(step.nbytes for step in events) // rows, 1)
        rows_min = min(layout.file_rows // 2, FILE_BYTES_MIN // row_bytes)
        if rows < rows_min:
            return cells
        keys = [chunk for step in events for chunk in step.column(layout.key[0]).chunks]
        return with_gaps(cells, pa.concat_arrays(keys), rows_min=max(rows_min, 1))

    def _append(
        self,
        rewriting: FileRewrite,
        files: Sequence[DataFile],
        steps: Sequence[MergeStep],
        *,
        all_files: bool,
    ) -> PreparedFiles:
        events = [step for step in steps if isinstance(step, pa.Table)]
        added = rewriting.append(pa.concat_tables(events), beside=files) if events else []
        if not all_files:
            return PreparedFiles(added, ())
        for each in files:
            added += rewriting.cell(KeyRange(None, None, (each,)), ())
        return PreparedFiles(added, files)


def _steps_of(changes: Sequence[TableChanges], layout: LakeTableLayout) -> list[MergeStep]:
    """Returns the changes under the table's columns, with truncates between them."""
    found: list[MergeStep] = []
    held: list[pa.RecordBatch] = []
    for batch in changes:
        if batch.is_truncate and layout.mode != "append":
            if held:
                found.append(pa.Table.from_batches(held))
            held = []
            where = batch.truncated_where
            found.append(TruncateStep(batch.committed_us[0].as_py(), where))
        else:
            whole = batch.in_every_partition if batch.is_truncate and layout.key else [batch]
            held += [layout.conform(each) for each in whole]
    if held:
        found.append(pa.Table.from_batches(held))
    return found


def _emptied_before(steps: Sequence[MergeStep], layout: LakeTableLayout) -> int:
    """Returns the step before which the whole table was truncated last; 0 if it was not. A mirror
    needs nothing of what was before."""
    if layout.mode != "mirror" or layout.ignores_deletes:
        return 0
    for at in reversed(range(len(steps))):
        step = steps[at]
        if isinstance(step, TruncateStep) and not step.where:
            return at + 1
    return 0


def _steps_by_cell(
    steps: Sequence[MergeStep], cells: Sequence[KeyRange], layout: LakeTableLayout
) -> dict[KeyRange, list[MergeStep]]:
    found: dict[KeyRange, list[MergeStep]] = {cell: [] for cell in cells}
    for step in steps:
        if isinstance(step, TruncateStep) or len(cells) == 1:
            for mine in found.values():
                mine.append(step)
            continue
        keys = pa.concat_arrays(step.column(layout.key[0]).chunks)
        places, sorted_ = assign(keys, cells), step
        if np.any(places[1:] < places[:-1]):
            order = np.argsort(places, kind="stable")
            places, sorted_ = places[order], pick(step, order)
        ends = np.searchsorted(places, np.arange(len(cells) + 1))
        for number, mine in enumerate(found.values()):
            count = int(ends[number + 1] - ends[number])
            if count:
                mine.append(sorted_.slice(int(ends[number]), count))
    return found


@dataclass(frozen=True, slots=True)
class Truncates:
    """The truncates of one table, in the order in which they apply; pickled for executors.

    A change belongs before the next truncate of its own topic, or after all: this process would
    read it there.
    """

    steps: tuple[TruncateStep, ...] = ()
    markers: Mapping[TopicPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Offset and number of every truncate, by offset."""
    firsts: frozenset[tuple[TopicPartition, int]] = frozenset()
    """The one marker that stands for all markers of a truncate."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def emptied_by(self, layout: LakeTableLayout) -> int:
        """Returns the number of truncates up to the last that leaves nothing; 0 if none does."""
        return _emptied_before(self.steps, layout)

    def remaining(self, layout: LakeTableLayout) -> tuple[TruncateStep, ...]:
        """Returns the truncates that must be applied row by row."""
        return self.steps[self.emptied_by(layout) :]

    def stands_for_all(self, marker: TableChanges) -> bool:
        assert marker.log_partition is not None and marker.log_offsets is not None
        return (marker.log_partition, marker.log_offsets[0].as_py()) in self.firsts

    def add_epochs(
        self, events: pa.RecordBatch, changes: TableChanges, layout: LakeTableLayout
    ) -> pa.RecordBatch:
        """Returns the changes with their epochs, without those that a later truncate removes."""
        assert changes.log_partition is not None and changes.log_offsets is not None
        epochs = self._epochs(changes.log_partition, changes.log_offsets)
        placed = events.append_column(EPOCH, pa.array(epochs, pa.int32()))
        return placed.filter(pa.array(epochs >= self.emptied_by(layout)))

    def between(self, events: pa.Table, layout: LakeTableLayout) -> list[MergeStep]:
        """Returns the events, in any order, with the truncates between them."""
        first = self.emptied_by(layout)
        epochs = np.asarray(events.column(EPOCH))
        rows = events.drop_columns([EPOCH])
        found: list[MergeStep] = []
        for number in range(first, len(self.steps) + 1):
            mine = rows.filter(pa.array(epochs == number))
            if mine.num_rows:
                found.append(mine)
            found += self.steps[number : number + 1]
        return found

    def _epochs(self, partition: TopicPartition, offsets: pa.Int64Array) -> npt.NDArray[np.int64]:
        markers = self.markers.get(partition, ())
        places = np.searchsorted(np.array([at for at, _ in markers], np.int64), offsets)
        numbers = np.array([*(number for _, number in markers), len(self.steps)], np.int64)
        found: npt.NDArray[np.int64] = numbers[places]
        return found


def truncates_of(found: Sequence[Truncate]) -> Truncates:
    """`found` are in the order in which they apply."""
    markers: dict[TopicPartition, list[tuple[int, int]]] = {}
    for number, each in enumerate(found):
        for partition, offset in each.markers.items():
            markers.setdefault(partition, []).append((offset, number))
    steps = [
        TruncateStep(each.change.committed_us[0].as_py(), each.change.truncated_where)
        for each in found
    ]
    firsts = frozenset(next(iter(each.markers.items())) for each in found)
    return Truncates(tuple(steps), markers, firsts)
