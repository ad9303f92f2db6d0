"""The one contract that a sink fulfils, and the stretch of log that it is handed."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import Positions, TableChanges
from headwater.core_log.model.log import Log, RetainedRange, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema


class AppliedOffset(NamedTuple):
    """How much of a partition a target holds: everything below `next_offset` of that very topic."""

    topic_id: str
    next_offset: int


AppliedOffsets = Mapping[TopicPartition, AppliedOffset]


@dataclass(frozen=True, slots=True)
class ConsistentCut:
    """The commit boundary at which a slice ends: the same moment of the source for all tables."""

    offset: int
    """Where its record stands in `__headwater_commits`; names the cut."""
    committed_ms: int
    positions: Positions


class ChangeCount(NamedTuple):
    """What was read of one table of the source, before filters."""

    table: TableId
    topic: str
    rows: int
    bytes: int
    committed_ms: int
    """When the source committed the newest of them."""


Heard = Callable[[Sequence[ChangeCount]], None]


@dataclass(frozen=True, slots=True)
class Truncate:
    """One truncate of a table of the source."""

    change: TableChanges
    """As the target gets it."""
    markers: Mapping[TopicPartition, int]
    """Where in each partition of its topic it stands."""


class SplitReader(Protocol):
    """Reads parts of a slice in other processes, on other machines: it can be pickled, and makes
    its own connection to the log. Reading the same part twice gives the same.

    Who divides a slice among readers sees only at its end whether deletes were missed: see
    `headwater.sinks.expired_tombstones`.
    """

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        """Every shape that the topic's table has had, oldest first, as the target sees it; what
        was read of a slice has one of them."""
        ...

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        """Those of whole topics, in the order in which `Slice.changes` comes to them."""
        ...

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        """As `Slice.changes` does for a slice of one topic or a part of its partitions, but every
        truncate marker comes where it stands. `heard` is told at the end what was read."""
        ...


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of one or more topics between commit boundaries: what a sink applies at once.

    Small sinks iterate `changes()`; a Spark sink ships `start` and `end` to its executors, which
    read the log themselves, so that no row passes through this process.
    """

    log: Log
    start: AppliedOffsets
    end: AppliedOffsets
    cut: ConsistentCut | None
    """None below the oldest commit boundary that the log still remembers."""
    read: Callable[["Slice"], AsyncIterator[TableChanges]]
    truncated: frozenset[str] = frozenset()
    """Topics that may hold truncates in this stretch."""
    kept: Mapping[TopicPartition, RetainedRange] | None = None
    """What was left of its partitions when it was cut: what goes afterwards is missed."""
    split_reader: SplitReader | None = None
    """For sinks whose own processes read the log; None where the log has no address."""
    heard: Heard = lambda _: None
    """Told by these sinks what they have read of the slice, once that is in the target."""
    is_whole: bool = True
    """Whether it brings every table to the cut: none is paused, quarantined or lost meanwhile,
    but for those that are left out."""
    left_out: frozenset[str] = frozenset()
    """Topics whose tables their source reads again: at the cut they are of no moment."""

    def changes(self) -> AsyncIterator[TableChanges]:
        """The stretch decoded, transformed and routed, in the order of offsets within each
        partition, every change with its place in the log. A truncate comes once, after all that
        was before it in any partition of its topic."""
        return self.read(self)


@dataclass(frozen=True, slots=True)
class TableHealth:
    """How a table of the target lies in its files, where it is kept in files."""

    table: TableId
    files: int
    small_files: int
    """Those that had better be put together."""
    bytes: int


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink gets from the pipeline that it belongs to."""

    pipeline: str
    directory: Path
    """Relative paths are meant from here: the pipeline file's directory."""
    schema_changes: Mapping[str, str]
    """The policy per kind of change, see `headwater.sinks.evolution`."""
    clock: Clock
    name: str = "sink"
    """The sink's name in its pipeline: two sinks of one kind keep their places apart by it."""
    report: Callable[[TableHealth], None] = lambda _: None


class Sink(Protocol):
    """Writes to one external system.

    A class that fulfils this has a `Settings` model and is made as `Class(settings, context)`;
    making one touches nothing outside.
    """

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        """What the target itself says it holds; None when it cannot remember. An empty answer is
        an answer: the target starts afresh."""
        ...

    async def apply(self, part: Slice) -> None:
        """Makes the slice visible in the target, once, together with `part.end`.

        Only if the target still stands at `part.start`: else somebody else has moved it, and this
        raises `Fenced`. What one table cannot take is `SinkRejected` with its `table`; records
        that are to blame one by one are `RecordsRejected`.
        """
        ...

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        """What would be created or altered for these tables, as statements or sentences; changes
        nothing."""
        ...

    async def examine(self) -> Sequence[Diagnostic]:
        """What stands in the way, before anything is started; changes nothing."""
        ...

    async def drop(self) -> Sequence[str]:
        """Removes what this pipeline made in the target, its tables included; says what."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RebuildRecipe:
    """What a second copy of a table is to become."""

    table: TableId
    newest: TableSchema | None = None
    """The shape that the table has at the end of what fills the copy: its columns get these types
    at once, and older values are put into them. None: types come with the rows."""
    rules: str = ""
    """What the pipeline file says of its rows, and how the sink is to keep them."""

    @property
    def digest(self) -> str:
        """Stored with the copy: one that was begun by another recipe is begun anew."""
        shape = [] if self.newest is None else [*self.newest.columns, self.newest.key]
        return sha256(f"{shape}\0{self.rules}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Rows of the live table that go over to its copy, where these tables keep deleted rows: of a
    row that is gone, compaction leaves nothing in the log but its delete."""

    key: tuple[str, ...]
    """By which the copy is asked whether it has a row."""
    until_us: int | None = None
    """Of a copy of the past: rows that were deleted later were not deleted then."""


class Rebuildable(Protocol):
    """A sink that can make a second copy of a table beside the live one and change over to it."""

    async def shadow(self, recipe: RebuildRecipe) -> Sink:
        """A sink that fills a copy of the table."""
        ...

    async def swap(self, table: TableId, carry_over: CarryOver | None = None) -> str:
        """Puts the copy in the live one's place, offsets and all, in one commit; says where the
        old one is kept. Nobody writes to either meanwhile."""
        ...


DELETED_AT = "_headwater_deleted_at"
"""When the source deleted a row that stays; null of one that is there."""


class DeletedRows(Enum):
    """What becomes of them in a target's table."""

    GONE = "gone"
    STAY = "stay"
    """With nothing that tells them from others: `deletes: ignore`."""
    MARKED = "marked"
    """They stay, and say since when: mode `soft_delete`."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """What a target's table holds at one moment, while the sink may go on writing to it."""

    stands: AppliedOffsets
    """How much of the log is in these very rows; empty where there is no table yet."""
    columns: tuple[str, ...]
    """Which columns the target gives back with the values it was given, the key's among them."""
    batches: AsyncIterator[pa.RecordBatch]
    """The rows as they are now, in any order: of a history or a change log only what is current.
    They have `columns`, in that order, of the types that the schema asks for, and behind these
    `DELETED_AT` where deleted rows are marked."""
    deleted: DeletedRows = DeletedRows.GONE


class Comparable(Protocol):
    """A sink whose tables can be read back, for `headwater verify`."""

    def contents(
        self, schema: TableSchema, topics: Collection[str]
    ) -> AbstractAsyncContextManager[TableContents]:
        """The table that `schema`, that of the target, is kept in, and where it stands in those
        topics. Rows and stands are of one moment, and the moment lasts as long as the context."""
        ...


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a table that its target keeps readable, and how much of the log is in it."""

    version: str
    """As the target's own time travel names it."""
    stands: AppliedOffsets
    committed_ms: int | None
    """When the source committed the newest change of the cut, where there was one."""
    positions: Positions


@runtime_checkable
class TableDroppable(Protocol):
    """A sink that can remove one of its tables, for `headwater drop PIPELINE/TABLE --data`."""

    async def drop_table(self, table: TableId, topics: Collection[str]) -> Sequence[str]:
        """Removes the table, copies of it included, and where it stands in these topics; says
        what. One that somebody else made is left alone, with an error."""
        ...


class Versioned(Protocol):
    """A sink whose target keeps versions of its tables."""

    async def versions(self, table: TableId, *, newest: int) -> Sequence[TableVersion]:
        """The newest so many versions of a table of the target, the newest first."""
        ...


class MaintenanceFailed(SinkRejected):
    """Some tables could not be cared for; all others were."""

    def __init__(self, done: Sequence[str], failures: Mapping[str, str]) -> None:
        super().__init__("tables could not be maintained", tables=", ".join(failures))
        self.done, self.failures = done, failures


class Maintainable(Protocol):
    """A sink whose tables want care from time to time, for `headwater maintain`."""

    async def maintain(self, tables: Collection[str]) -> Sequence[str]:
        """Puts small files together and removes what no version needs, of these tables or of all;
        says what was done. Whoever writes to them goes on. Raises `MaintenanceFailed` at the end
        where it failed for some of them."""
        ...
