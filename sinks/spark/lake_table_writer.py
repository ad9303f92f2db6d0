"""The writer of one table of the lake: load, prepare, and one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.core_log.foundation.errors import Fenced, RebuildNeeded, SinkRejected
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
from headwater.sinks.spark.file_rewrite import FileRewrite, PreparedFiles
from headwater.sinks.spark.key_ranges import DataFile
from headwater.sinks.spark.layout import REBUILD, AlteredColumns, LakeTableLayout, outgrown, shape
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
    """The state that the commit goes on from."""
    state: LakeTableState | None
    """The same with what has been staged."""
    layout: LakeTableLayout | None = None
    counts: Sequence[ChangeCount] = ()
    rows_written_again: int = 0
    """Rows of files that were staged before, and had to be written anew for later changes."""

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
        state = staged.state or self._creation(layout, id="").state({})
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
