"""The contract of a sink, and the slice of the log that it applies."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import Diagnostic, PositionLost, SinkRejected
from headwater.core_log.model.changes import Positions, TableChanges
from headwater.core_log.model.log import Bounds, Log, RetainedRange, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema


class AppliedOffset(NamedTuple):
    """The offset up to which a target holds a partition: everything below `next_offset` of that
    topic."""

    topic_id: str
    next_offset: int
    leader_epoch: int = -1
    """That of the log when the target got there, stored as evidence: if the epoch ends below the
    offset, the log is another one, such as a copy from before. -1: not known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppliedOffset) and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])


AppliedOffsets = Mapping[TopicPartition, AppliedOffset]


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """The commit boundary at which a slice ends: the same moment of the source for all tables."""

    offset: int
    """The offset of its record in `__headwater_commits`; identifies the cut."""
    committed_ms: int
    positions: Positions


class ChangeCount(NamedTuple):
    """The changes of one source table that were read, before filters."""

    table: TableId
    topic: str
    rows: int
    bytes: int
    committed_ms: int
    """When the source committed the newest of them."""


Heard = Callable[[Sequence[ChangeCount]], None]


@dataclass(frozen=True, slots=True)
class Truncate:
    change: TableChanges
    """The change as the target gets it."""
    markers: Mapping[TopicPartition, int]
    """Its offset in each partition of its topic."""


class SplitReader(Protocol):
    """Reads parts of a slice in other processes or on other machines.

    It can be pickled, and makes its own connection to the log. A repeated read of a part returns
    the same. A program that splits a slice must check for missed deletes at its end: see
    `headwater.sinks.sink`.
    """

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        """Returns every schema of the topic's table, oldest first, as the target sees it. Changes
        of the slice have one of them."""
        ...

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        """Returns truncates of whole topics, in the order in which `Slice.changes` yields them."""
        ...

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        """Yields changes as `Slice.changes`, for one topic or some of its partitions, but every
        truncate marker at its own offset. `heard` gets the counts at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Slice:
    """An offset range of one or more topics between commit boundaries: a sink applies it at once.

    Small sinks iterate `changes()`. A Spark sink sends `start` and `end` to its executors, which
    read the log themselves, so that no row passes through this process.
    """

    log: Log
    start: AppliedOffsets
    end: AppliedOffsets
    cut: ConsistentCut | None
    """None below the oldest commit boundary that the log still has."""
    read: Callable[["Slice"], AsyncIterator[TableChanges]]
    truncated: frozenset[str] = frozenset()
    """Topics that may have truncates in this slice."""
    kept: Mapping[TopicPartition, RetainedRange] | None = None
    """Log start offsets when the slice was made; records that are removed later are missed."""
    split_reader: SplitReader | None = None
    """For sinks whose own processes read the log; None if the log has no address."""
    heard: Heard = lambda _: None
    """Such sinks report here what they have read of the slice, once it is in the target."""
    is_whole: bool = True
    """Whether the slice brings every table to the cut: none is paused, quarantined or lost, except
    `left_out`."""
    left_out: frozenset[str] = frozenset()
    """Topics whose tables the source is reading again: they have no consistent state at the cut."""
    oldest_ms: int = 0
    """When the source committed the oldest change of the slice; 0 if that is not known."""

    def changes(self) -> AsyncIterator[TableChanges]:
        """Yields the slice decoded, transformed and routed, in offset order within each partition,
        every change with its place in the log. A truncate comes once, after everything before it
        in any partition of its topic."""
        return self.read(self)


@dataclass(frozen=True, slots=True)
class TableHealth:
    """File statistics of a target table, for targets that store files."""

    table: TableId
    files: int
    small_files: int
    """Files that should be compacted."""
    bytes: int


@dataclass(frozen=True, slots=True)
class SinkContext:
    pipeline: str
    directory: Path
    """The pipeline file's directory, to which paths are relative."""
    schema_changes: Mapping[str, str]
    """The policy per kind of change, see `headwater.sinks.evolution`."""
    clock: Clock
    name: str = "sink"
    """The sink's name in its pipeline, by which two sinks of one type keep their data apart."""
    report: Callable[[TableHealth], None] = lambda _: None


class Sink(Protocol):
    """Writes to one external system.

    A class that fulfils this contract has a `Settings` model and is made as `Class(settings,
    context)`, which has no effect outside the process.
    """

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        """Returns the offsets that the target stores; None if it cannot store any. An empty mapping
        means that the target is empty."""
        ...

    async def apply(self, part: Slice) -> None:
        """Makes the slice visible in the target, exactly once, together with `part.end`.

        The target must still be at `part.start`; otherwise somebody else has moved it, and this
        raises `Fenced`. Raises `SinkRejected` with its `table` if one table cannot take the slice,
        `RecordsRejected` if single records are the reason.
        """
        ...

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        """Yields what would be created or altered for these tables, as statements or sentences;
        changes nothing."""
        ...

    async def examine(self) -> Sequence[Diagnostic]:
        """Yields diagnostics of the target before anything is started; changes nothing."""
        ...

    async def drop(self) -> Sequence[str]:
        """Removes what this pipeline made in the target, its tables included; returns a
        description."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RebuildRecipe:
    """The recipe of a table's second copy."""

    table: TableId
    newest: TableSchema | None = None
    """The table's final schema: columns get these types at once, and older values are converted.
    None: the types of each change."""
    rules: str = ""
    """The pipeline file's rules for its rows, and the sink's settings for the table."""

    @property
    def digest(self) -> str:
        """Returns a digest that is stored with the copy; a copy with another digest is started
        again."""
        form = [] if self.newest is None else [*self.newest.columns, self.newest.key]
        return sha256(f"{form}\0{self.rules}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Deleted rows of the live table that are copied to a table that keeps deleted rows. Compaction
    leaves only the delete of such a row in the log."""

    key: tuple[str, ...]
    """The columns by which the copy is searched for a row."""
    until_us: int | None = None
    """For a copy of the past: rows that were deleted later were not deleted then."""


class Rebuildable(Protocol):
    """A sink that can make a second copy of a table beside the live one and swap them."""

    async def shadow(self, recipe: RebuildRecipe) -> Sink:
        """Returns a sink that fills a copy of the table."""
        ...

    async def swap(self, table: TableId, carry_over: CarryOver | None = None) -> str:
        """Swaps the copy for the live table, offsets included, in one commit; returns where the old
        one is kept. The caller ensures that no process writes to either."""
        ...


DELETED_AT = "_headwater_deleted_at"
"""When the source deleted a kept row; null for existing rows."""


class DeletedRows(Enum):
    """How a target table treats deleted rows."""

    GONE = "gone"
    STAY = "stay"
    """They stay without a mark: `deletes: ignore`."""
    MARKED = "marked"
    """They stay with the time of the delete: mode `soft_delete`."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """The contents of a target table at one moment; the sink may go on writing to it."""

    offsets: AppliedOffsets
    """The offsets of exactly these rows; empty if there is no table yet."""
    columns: tuple[str, ...]
    """Columns that the target returns with their original values, the key's included."""
    batches: AsyncIterator[pa.RecordBatch]
    """Yields the current rows in any order; of a history or a change log only the current ones.

    They have `columns`, in that order, with the schema's types, and then `DELETED_AT` if deleted
    rows are marked.
    """
    deleted: DeletedRows = DeletedRows.GONE


class Comparable(Protocol):
    """A sink whose tables can be read back, for `headwater verify`."""

    def contents(
        self, schema: TableSchema, topics: Collection[str]
    ) -> AbstractAsyncContextManager[TableContents]:
        """Opens the table of `schema` (the target's) with its offsets in those topics.

        Rows and offsets are of one moment until the context ends.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table that its target keeps readable, and its offsets."""

    version: str
    """The version's name in the target's own time travel."""
    offsets: AppliedOffsets
    committed_ms: int | None
    """When the source committed the newest change of the cut, if there was one."""
    positions: Positions


@runtime_checkable
class TableDroppable(Protocol):
    """A sink that can remove one of its tables, for `headwater drop PIPELINE/TABLE --data`."""

    async def drop_table(self, table: TableId, topics: Collection[str]) -> Sequence[str]:
        """Removes the table, its copies, and its offsets in these topics; returns a description.
        Raises for a table that somebody else made, and leaves it alone."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A sink whose target keeps versions of its tables."""

    async def versions(self, table: TableId, *, newest: int) -> Sequence[TableVersion]:
        """Returns the newest `newest` versions of a target table, newest first."""
        ...


class MaintenanceFailed(SinkRejected):
    """Maintenance of some tables has failed; all others were maintained."""

    def __init__(self, done: Sequence[str], failures: Mapping[str, str]) -> None:
        super().__init__("maintenance of some tables has failed", tables=", ".join(failures))
        self.done, self.failures = done, failures


@runtime_checkable
class Maintainable(Protocol):
    """A sink whose tables need regular maintenance, for `headwater maintain`."""

    async def maintain(self, tables: Collection[str]) -> Sequence[str]:
        """Compacts small files and removes unneeded ones, of these tables or of all; returns
        descriptions.

        Writers continue meanwhile. Raises `MaintenanceFailed` at the end if it failed for some
        tables.
        """
        ...


def check_no_delete_was_missed(
    start: AppliedOffsets,
    *,
    before: Mapping[TopicPartition, Bounds | RetainedRange],
    after: Mapping[TopicPartition, Bounds | RetainedRange],
) -> None:
    """Raises PositionLost if a delete was missed.

    `start` is where the whole read began; `before` and `after` are the log start offsets when it
    began and when it ended.
    """
    for partition, retained in after.items():
        dropped_to = retained.deletes_dropped_to
        if dropped_to > max(before[partition].deletes_dropped_to, start[partition].next_offset):
            raise PositionLost(
                "the log removed deletes before they were read",
                hint="raise log.delete_retention, then rebuild the table",
                topic=partition.topic,
                partition=partition.partition,
                deletes_dropped_to=dropped_to,
            )
