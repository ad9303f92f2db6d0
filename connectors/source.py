"""The contract of a source."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

CONTROL = "control/"
"""Prefix of a signal's id in a part of the position, which says that the signal was started or
refused."""
REFUSED = "refused"
"""Value of that part for a refused signal; any other value means that it was started."""


@dataclass(frozen=True, slots=True)
class Control:
    """A signal from `__headwater_control`; once it is done, `control/<id>` becomes a part of the
    position."""

    id: str
    kind: str
    table: TableId | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """Progress of the initial snapshot of one table."""

    table: TableId
    rows: int
    rows_expected: int | None = None
    bytes: int | None = None
    bytes_expected: int | None = None
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric of the source for users, such as the size of the retained write-ahead log."""

    name: str
    """The metric's name: `retained_wal_bytes`."""
    value: int
    limit: int | None = None
    """Value above which it is too large."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark to users about a source that keeps running."""

    name: str
    """Its subject; the next remark of the same name replaces it."""
    finding: Diagnostic | None
    """The remark; None removes it."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free space of a local disk on which the rows are stored."""

    users: Sequence[str]
    """Users of the disk: the log, and sinks by their names."""
    bytes: int


SourceReport = SnapshotProgress | Gauge | Remark


class FormCheck(Protocol):
    """Check whether the log may contain rows of a table with this schema, by the rules that hide
    columns."""

    async def __call__(
        self, schema: TableSchema, *, is_next: bool = False
    ) -> HeadwaterError | None:
        """Returns the reason against it; None if it is allowed. `is_next`: its rows follow those of
        the schemas that were checked before; otherwise it is a preview."""
        ...


async def anything_goes(schema: TableSchema, *, is_next: bool = False) -> None:
    """Allows every schema, because no rule hides anything."""


class NewTableCheck(Protocol):
    """Check of a table that came after others, for sources whose tables have no ids."""

    async def __call__(
        self,
        schema: TableSchema,
        *,
        may_be: Callable[[TableId], bool],
        is_gone: Callable[[TableId], bool],
    ) -> HeadwaterError | None:
        """Returns why none of its rows may enter the log. `may_be`: whether it may be that table
        under another name. `is_gone`: whether that table is not there any more."""
        ...


async def nothing_renamed(
    schema: TableSchema,
    *,
    may_be: Callable[[TableId], bool],
    is_gone: Callable[[TableId], bool],
) -> None:
    """Allows every table, because no rule hides anything."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The pipeline's parameters for a source."""

    pipeline: str
    directory: Path
    """Relative paths start here: the pipeline file's directory."""
    clock: Clock
    report: Callable[[SourceReport], None]
    schema_changes: Mapping[str, str] = field(default_factory=dict)
    """The policy per kind of change; `headwater.connectors.schema_changes` defines the kinds."""
    settle_ms: int = 30_000
    """How long a table with a changed schema must be quiet before it is read again."""
    free_space: Callable[[], Sequence[FreeSpace]] = tuple
    """Free space on the disks of this machine that receive the rows."""
    until_end: bool = False
    """Whether the iteration ends once all present rows and changes are read, for `headwater run
    --once`."""
    follows_columns: Callable[[TableId, Collection[str]], bool] = lambda table, names: True
    """Whether the log and every target of a table follow columns by their ids, without its rows,
    when columns get these names."""
    refusal: FormCheck = anything_goes
    """Called before the first row of each schema is emitted, so that only its table is left out."""
    refusal_of_new: NewTableCheck = nothing_renamed
    """Called before `refusal` for a table that is new and has no id."""


class Source(Protocol):
    """Reads one external system. Ending the iteration must release every connection.

    The class has a `Settings` model and is constructed as `Class(settings, context)`; the
    constructor touches nothing outside.
    """

    def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        """Yields batches from just after `resume_from`; from the beginning if it is empty. It ends
        only if there can never be more."""
        ...

    async def acknowledge(self, positions: Positions) -> None:
        """Everything up to `positions` is durable in the log; the source may forget it."""
        ...

    async def control(self, control: Control) -> None:
        """Handles a signal for the running iteration: start or stop a snapshot, add a table."""
        ...

    async def discover(self) -> Sequence[TableSchema]:
        """Returns the tables that would be captured at present; changes nothing."""
        ...

    async def examine(self) -> Sequence[Diagnostic]:
        """Returns the problems that would prevent a start; changes nothing."""
        ...

    async def drop(self) -> Sequence[str]:
        """Removes everything that this pipeline left at the source; returns a description of it."""
        ...


@runtime_checkable
class RowEstimating(Protocol):
    """A source that knows the approximate number of rows of its tables without reading them. A new
    topic of a large table gets several partitions by that."""

    async def row_estimates(self) -> Mapping[TableId, int]:
        """Returns estimates for the tables that `discover` finds, if they are known; changes
        nothing."""
        ...


@runtime_checkable
class Resettable(Protocol):
    """A source that can read one table again while the others go on, for `headwater drop`."""

    def parts_of(self, table: TableId) -> Sequence[str]:
        """Returns the parts of its position without which the table is read like a new one."""
        ...


@runtime_checkable
class SourcePlanning(Protocol):
    """A source for which a run creates objects, for `headwater plan`."""

    async def plan(self) -> Sequence[str]:
        """Returns statements or sentences about the changes a run would make there; changes
        nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """All tables of a source at one position."""

    positions: Positions
    """The position: the rows contain every change before it, and none after. Empty if the source
    does not know it; then the rows are of about the present."""
    rows: Callable[[TableId], AsyncIterator[TableChanges]]
    """Returns the rows of a table as `READ`s under its present schema, in any order."""
    sees_deletes: bool = True
    """Whether rows that are deleted at the source are ever deleted from the log."""
    rejected: Callable[[TableId], Sequence[TableChanges]] = lambda _: ()
    """Rows with values that no column can hold, which the last complete `rows` of that table left
    out: their keys, and nulls. The key is null if the key itself cannot be read."""
    has_left: Callable[[TableId], bool] = lambda _: False
    """Whether the source has no such table any more, or does not capture it any more: its rows in
    the log stay unchanged."""
    tables: Mapping[TableId, str] = field(default_factory=dict)
    """All tables that the settings name, each with the reason why it is not captured, or empty."""
    columns: Callable[[TableId], Collection[str] | None] = lambda _: None
    """Names of the columns that `rows` has; None if they are those of the log."""
    has_changes_since: Callable[[Positions], Awaitable[bool | None]] | None = None
    """Whether any row was changed between those positions and these: a position may move without
    that. None while another process follows the source, because its position then arrives
    anyway."""


@runtime_checkable
class Retaining(Protocol):
    """A source whose system retains changes until they are read, also while nothing reads them."""

    async def watch_retained(self) -> None:
        """Reports how much it retains, while the source is paused. Runs until it is cancelled;
        raises only if the position is lost."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A source that can say before a run whether it can continue from the stored position."""

    async def examine_position(
        self, stored: Callable[[], Awaitable[Positions]]
    ) -> Sequence[Diagnostic]:
        """Returns the problems of continuing from `stored`, which is empty before the first run,
        without those that `examine` returns. `stored` is read inside, because the source may be
        running: it is then never older than a position confirmed to the system before. Changes
        nothing."""
        ...


@runtime_checkable
class Replacing(Protocol):
    """A source that detects by itself that a table has another key, and reads it again."""

    def replaces_tables(self) -> bool:
        """Whether its settings allow that."""
        ...


NEW_KEY = "new key"
"""An outcome after which the table has another topic."""


@dataclass(frozen=True, slots=True)
class DdlOutcome:
    """The effect of DDL on one table."""

    table: TableId
    statement: str
    outcome: str
    """A term of docs/schema-changes.md: `followed`, `read again`, `new key`, `new topic`, `left
    out`, `differs`."""
    why: str
    cost: str = ""
    """The cost of the re-read, as text."""
    quarantine: str = ""
    """The reason why it would not be read again automatically."""
    schema: TableSchema | None = None
    """The table's schema after the DDL; None if targets are not affected."""


@runtime_checkable
class Rehearsing(Protocol):
    """A source that can try DDL without changing a table, for `headwater plan --ddl`."""

    async def rehearse(self, statements: Sequence[str]) -> Sequence[DdlOutcome]:
        """Returns the effects; raises ConfigError or SourceRejected for statements that cannot be
        tried."""
        ...


class Snapshotable(Protocol):
    """A source whose tables can be read at one position beside a running pipeline, for `headwater
    verify`."""

    def snapshot(self, reached: Positions) -> AbstractAsyncContextManager[SourceSnapshot]:
        """Returns a snapshot at or after `reached`, the log's position. Nothing stays at the source
        when the context ends."""
        ...
