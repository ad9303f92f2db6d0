"""The writer of one table of the lake: load, prepare, and one commit."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import Fenced, RebuildNeeded, SinkRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import toward
from headwater.sinks.sink import (
    AppliedOffset,
    AppliedOffsets,
    ChangeCount,
    ConsistentCut,
    SinkContext,
)
from headwater.sinks.spark.columns import AlteredColumns
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import (
    DataFile,
    KeyRange,
    assign,
    cells_of,
    with_gaps,
)
from headwater.sinks.spark.layout import REBUILD, LakeTableLayout, outgrown, shape
from headwater.sinks.spark.merge import MergeStep, TruncateStep, count_changes
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink_state import PassedRange
from headwater.sinks.spark.storage_location import StorageLocation
from headwater.sinks.spark.table import (
    LakeTable,
    LakeTableState,
    Overtaken,
    TableCommit,
    TableCreation,
    TableOwner,
    TopicFeed,
    merge_feeds,
    owner_of,
)

FILE_BYTES_MIN = 32 << 20
"""Rows of so many bytes, before they are compressed, are worth a file however few they are."""
ATTEMPTS_MAX = 5
"""Attempts of a commit when maintenance or a person commits first."""


@dataclass(frozen=True, slots=True)
class TableSlice:
    """The part of a slice for one table."""

    start: AppliedOffsets
    end: AppliedOffsets
    feeds: Mapping[str, TopicFeed]
    cut: ConsistentCut | None


@dataclass(frozen=True, slots=True)
class PreparedFiles:
    """New files, and the files that they replace."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]
    counts: Sequence[ChangeCount] = ()
    """Counts of what was read in other processes."""


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A prepared commit: the table's former state, its new layout, and the files."""

    state: LakeTableState | None
    layout: LakeTableLayout
    prepared: PreparedFiles


@dataclass(slots=True)
class StagedTable:
    """A table with changes in it that nobody sees yet: their files are written, and no commit names
    them."""

    base: LakeTableState | None
    """What the commit goes on from."""
    state: LakeTableState | None
    """The same with what has been staged."""
    layout: LakeTableLayout | None = None
    counts: Sequence[ChangeCount] = ()
    rows_written_again: int = 0
    """Of files that were staged before, and had to be written anew for later changes."""

    @property
    def files(self) -> Sequence[DataFile]:
        return () if self.state is None else self.state.files

    def to_commit(self) -> PreparedCommit:
        assert self.layout is not None, "something has been staged"
        before = {} if self.base is None else {each.path: each for each in self.base.files}
        left = {each.path for each in self.files}
        added = [each for each in self.files if each.path not in before]
        removed = [each for path, each in before.items() if path not in left]
        return PreparedCommit(self.base, self.layout, PreparedFiles(added, removed, self.counts))


class SchemasChanged(Exception):
    """The slice has changes of other schemas than expected; these are the schemas."""


class SliceWork(Protocol):
    """The changes of a slice of one table, read in this process or on executors."""

    def schemas(self) -> Sequence[TableSchema]:
        """The schemas of the changes, in the order of their appearance."""
        ...

    def prepare(
        self, rewriting: FileRewrite, files: Sequence[DataFile], *, all_files: bool
    ) -> PreparedFiles:
        """Writes new files for a table with `files`; rewrites every file if required."""
        ...


class LakeTableWriter:
    """Writes one table. Its work runs in threads; one call of `apply` at a time."""

    def __init__(
        self,
        table: TableId,
        lake: LakeTable,
        place: StorageLocation,
        settings: SparkSettings,
        context: SinkContext,
        *,
        generation: int = 1,
        newest: TableSchema | None = None,
    ) -> None:
        """`newest`: the schema whose types the shadow's columns get."""
        self.table, self.lake, self.place = table, lake, place
        self._settings, self._context = settings, context
        self._generation, self._last = generation, newest
        self.newest: LakeTableState | None = None
        """The state after our last commit."""

    @property
    def owner(self) -> TableOwner:
        return owner_of(self._context.pipeline, self._context.name, self.table)

    @property
    def ignores_deletes(self) -> bool:
        """Returns whether deletes are ignored: the rows stay unmarked."""
        return self._settings.of(str(self.table)).deletes == "ignore"

    @property
    def file_rows(self) -> int:
        return self._settings.of(str(self.table)).file_rows

    @property
    def now_ms(self) -> int:
        return self._context.clock.now_ms()

    @property
    def _is_iceberg(self) -> bool:
        return self._settings.format == "iceberg"

    @property
    def keeps_partitions(self) -> bool:
        """Returns whether partition columns are stored in the files too."""
        return self._is_iceberg

    def load(self) -> LakeTableState | None:
        """Returns the table's state; raises `SinkRejected` if somebody else owns it."""
        state = self.lake.load()
        if state is not None:
            self._check_owner(state)
        return state

    def waits_for_rebuild(self, *, has_key: bool = False) -> str | None:
        """Returns how the table differs from the settings, in words; a rebuild is needed.

        A table of all changes (`append`) does not store whether its rows have a key.
        """
        state, chosen = self.lake.load(), self._settings.of(str(self.table))
        if state is None or state.owner != self.owner:
            return None
        if (state.key or has_key) and state.mode != chosen.mode:
            return f"in mode {state.mode}, and not {chosen.mode}"
        wanted = tuple(name for name in chosen.partition_by if name in state.schema.names)
        if state.partition_by != wanted:
            return f"{_division(state.partition_by)}, and not {_division(wanted)}"
        return None

    def prepare(
        self,
        work: SliceWork | None,
        table_slice: TableSlice,
        *,
        passed: Mapping[TopicPartition, PassedRange],
        staged: StagedTable | None = None,
    ) -> PreparedCommit:
        """Writes the files of a commit. `passed` are offsets of the sink state beyond the table's
        own; `staged` is the part of the slice that is written already."""
        if staged is None:
            staged = self.open(table_slice, passed=passed)
        else:  # what was staged may have come from fewer topics
            self._check_start(staged.base, table_slice, passed)
        if work is not None:
            self.stage(staged, work, table_slice.feeds)
        return staged.to_commit()

    def open(
        self, table_slice: TableSlice, *, passed: Mapping[TopicPartition, PassedRange]
    ) -> StagedTable:
        """The table as it is, for changes to be staged that begin where the slice does."""
        state = self.load()
        self._check_not_put_back(state)
        self._check_start(state, table_slice, passed)
        return StagedTable(state, state)

    def stage(self, staged: StagedTable, work: SliceWork, feeds: Mapping[str, TopicFeed]) -> None:
        """Writes what makes changes part of the staged table, as a slice of its own would."""
        while True:
            layout, all_files = self.layout(work.schemas(), staged.state, feeds)
            rewriting = FileRewrite(self.place, layout, keeps_partitions=self.keeps_partitions)
            try:
                prepared = work.prepare(rewriting, staged.files, all_files=all_files)
            except SchemasChanged:
                continue
            self._take(staged, layout, prepared, feeds)
            return

    def _take(
        self,
        staged: StagedTable,
        layout: LakeTableLayout,
        prepared: PreparedFiles,
        feeds: Mapping[str, TopicFeed],
    ) -> None:
        removed = {each.path for each in prepared.removed}
        committed = set() if staged.base is None else {each.path for each in staged.base.files}
        again = [each for each in prepared.removed if each.path not in committed]
        if again:  # nobody has ever heard of them
            self.place.store.remove([each.path for each in again])
        staged.rows_written_again += sum(each.rows for each in again)
        staged.counts = [*staged.counts, *prepared.counts]
        staged.layout = layout
        files = (*(each for each in staged.files if each.path not in removed), *prepared.added)
        state = staged.state
        if state is None:
            creation = self._creation(layout, id="")
            state = LakeTableState(
                version=-1,
                id=creation.id,
                schema=creation.schema,
                files=(),
                offsets={},
                generation=creation.generation,
                mode=creation.mode,
                key=creation.key,
                owner=creation.owner,
                partition_by=creation.partition_by,
            )
        staged.state = replace(
            state,
            schema=layout.schema,
            columns=layout.held,
            feeds=merge_feeds(state.feeds, feeds),
            files=files,
        )

    def commit(self, ready: PreparedCommit, table_slice: TableSlice, *, id: str) -> bool:
        """Commits rows and offsets together; returns false if another commit came first.

        `id` is the table's identity if it is created.
        """
        try:
            self.newest = self._commit(
                ready.state, ready.layout, ready.prepared, table_slice, id=id
            )
        except Overtaken:
            return False
        return True

    def layout(
        self,
        schemas: Sequence[TableSchema],
        state: LakeTableState | None,
        feeds: Mapping[str, TopicFeed],
    ) -> tuple[LakeTableLayout, bool]:
        """Returns the layout for these schemas, and whether all files must be rewritten."""
        present = None if state is None else state.schema
        chosen = self._settings.of(str(self.table))
        known = merge_feeds({} if state is None else state.feeds, feeds)
        # Only one partition has its schemas in order.
        may_drop = sum(feed.partitions for feed in known.values()) <= 1
        policy = self._context.schema_changes
        all_files, layout = False, None
        forgotten = loose = frozenset[str]()
        altered = AlteredColumns(ColumnIds() if state is None else state.columns)
        for schema in schemas:
            if present is not None:
                divided = () if state is None else state.partition_by
                present = altered.rename(schema, present, policy=policy, partition_by=divided)
            layout, changes = shape(
                toward(schema, self._last),
                chosen,
                present,
                policy=policy,
                may_drop=may_drop,
                is_iceberg=self._is_iceberg,
            )
            if present is not None:
                forgotten |= set(present.names) - set(layout.schema.names)
            altered.learn(schema, skipped=layout.skipped, is_new=present is None)
            present, all_files, loose = layout.schema, all_files or changes, loose | layout.loose
        assert layout is not None, "there are no changes without a schema"
        if state is not None and state.key and layout.key[:1] != (state.key,):
            # The ranges of its files belong to the former key.
            raise RebuildNeeded(
                "the target table has another key",
                table=str(self.table),
                held=state.key,
                comes=layout.key[0] if layout.key else "none",
                hint=REBUILD,
            )
        if state is not None:
            layout = replace(layout, partition_by=state.partition_by)
        if self._last is not None:
            loose |= outgrown(schemas, layout, is_iceberg=self._is_iceberg)
        layout = replace(
            layout,
            forgotten=forgotten | altered.left,
            loose=loose & set(layout.columns.names),
            renamed=altered.renamed,
            filled=altered.filled,
            absent=frozenset(layout.columns.names) - frozenset(schemas[-1].names),
            held=altered.held,
        )
        return layout, all_files or bool(altered.renamed or altered.filled)

    def _commit(
        self,
        state: LakeTableState | None,
        layout: LakeTableLayout,
        prepared: PreparedFiles,
        table_slice: TableSlice,
        *,
        id: str,
    ) -> LakeTableState:
        change = TableCommit(
            added=prepared.added,
            removed=prepared.removed,
            offsets=table_slice.end,
            feeds=table_slice.feeds,
            cut=table_slice.cut,
            committed_ms=self._context.clock.now_ms(),
            schema=layout.schema,
            columns=layout.held,
            operation="WRITE" if layout.mode == "append" else "MERGE",
        )
        if state is not None:
            return self.lake.commit(state, change)
        return self.lake.create(self._creation(layout, id=id), change)

    def _creation(self, layout: LakeTableLayout, *, id: str) -> TableCreation:
        return TableCreation(
            id=id,
            schema=layout.schema,
            mode=layout.mode,
            key="" if layout.mode == "append" else layout.key[0],
            owner=self.owner,
            partition_by=layout.partition_by,
            generation=self._generation,
            columns=layout.held,
        )

    def _check_owner(self, state: LakeTableState) -> None:
        if state.owner == self.owner:
            return
        if state.owner is None:
            raise SinkRejected(
                "a table of this name exists, and no pipeline made it",
                table=str(self.table),
                place=self.place.root,
                owner="nobody",
                hint="move it away, or choose another name with `route` or `table:`",
            )
        is_ours = state.owner[:2] == self.owner[:2]
        raise SinkRejected(
            "two tables of the source have the same target table"
            if is_ours
            else "the table belongs to another pipeline or sink",
            table=str(self.table),
            place=self.place.root,
            owner=f"{state.owner.pipeline}/{state.owner.sink}",
            hint="give one of them another name with `route` or `table:`, or another `path:`",
        )

    def _check_not_put_back(self, state: LakeTableState | None) -> None:
        if state is not None and state.is_put_back:
            raise SinkRejected(
                "the table was restored to a version without offsets",
                table=str(self.table),
                place=self.place.root,
                hint=f"headwater rebuild {self._context.pipeline}/{self.table} --swap",
            )

    def _check_start(
        self,
        state: LakeTableState | None,
        table_slice: TableSlice,
        passed: Mapping[TopicPartition, PassedRange],
    ) -> None:
        """Returns partitions that the table does not know yet; they begin with this slice."""
        offsets = {} if state is None else state.offsets
        for part, applied in table_slice.start.items():
            check_offset(part, farthest(part, offsets, passed), applied)


def _division(columns: Sequence[str]) -> str:
    return f"divided by {', '.join(columns)}" if columns else "undivided"


def farthest(
    part: TopicPartition, table: AppliedOffsets, passed: Mapping[TopicPartition, PassedRange]
) -> AppliedOffset | None:
    """Returns a partition's offset. The sink state adds ranges without rows that begin at the
    table's offset."""
    mine, more = table.get(part), passed.get(part)
    if mine is None or more is None:
        return mine if more is None else more.end
    if mine.topic_id != more.end.topic_id or mine.next_offset < more.since:
        return mine
    return max(mine, more.end, key=lambda applied: applied.next_offset)


def check_offset(part: TopicPartition, held: AppliedOffset | None, wanted: AppliedOffset) -> None:
    if held is not None and held != wanted:
        raise Fenced(
            "the target was moved by another process",
            topic=part.topic,
            partition=part.partition,
        )


CellTask = tuple[KeyRange, Sequence[MergeStep]]
Elsewhere = Callable[[FileRewrite, Sequence[CellTask]], Sequence[Sequence[DataFile]]]
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
        steps = steps_of(self._changes, layout)
        if layout.mode == "append":
            return self._append(rewriting, files, steps, all_files=all_files)
        files_left, steps_left = without_truncated(files, steps, layout)
        gone = [each for each in files if each not in files_left]
        is_whole = all_files or any(isinstance(step, TruncateStep) for step in steps_left)
        cells = self._cells(files_left, steps_left, layout)
        tasks = [
            (cell, mine)
            for cell, mine in zip(cells, steps_by_cell(steps_left, cells, layout), strict=True)
            if count_changes(mine) or (is_whole and cell.files)
        ]
        if self._elsewhere and sum(cell.rows for cell, _ in tasks) > self._rows_max:
            written = self._elsewhere(rewriting, tasks)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                written = list(pool.map(lambda task: rewriting.cell(*task), tasks))
        return PreparedFiles(
            added=[file for files in written for file in files],
            removed=gone + [file for cell, _ in tasks for file in cell.files],
        )

    def _cells(
        self, files: Sequence[DataFile], steps: Sequence[MergeStep], layout: LakeTableLayout
    ) -> Sequence[KeyRange]:
        """What comes above all keys of a cell's files is written beside these, and they are not
        read for it, where it is worth a file."""
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


def steps_of(changes: Sequence[TableChanges], layout: LakeTableLayout) -> list[MergeStep]:
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


def without_truncated(
    files: Sequence[DataFile], steps: Sequence[MergeStep], layout: LakeTableLayout
) -> tuple[Sequence[DataFile], Sequence[MergeStep]]:
    """Returns the steps after the last truncate of the whole table."""
    if layout.mode != "mirror" or layout.ignores_deletes:
        return files, steps
    for at in reversed(range(len(steps))):
        step = steps[at]
        if isinstance(step, TruncateStep) and not step.where:
            return (), steps[at + 1 :]
    return files, steps


def steps_by_cell(
    steps: Sequence[MergeStep], cells: Sequence[KeyRange], layout: LakeTableLayout
) -> list[list[MergeStep]]:
    found: list[list[MergeStep]] = [[] for _ in cells]
    for step in steps:
        if isinstance(step, TruncateStep) or len(cells) == 1:
            for mine in found:
                mine.append(step)
            continue
        keys = pa.concat_arrays(step.column(layout.key[0]).chunks)
        places, sorted_ = assign(keys, cells), step
        if np.any(places[1:] < places[:-1]):
            order = np.argsort(places, kind="stable")
            places, sorted_ = places[order], step.take(pa.array(order))
        ends = np.searchsorted(places, np.arange(len(cells) + 1))
        for number, mine in enumerate(found):
            count = int(ends[number + 1] - ends[number])
            if count:
                mine.append(sorted_.slice(int(ends[number]), count))
    return found
