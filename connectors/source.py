"""The one contract that a source fulfils."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema

CONTROL = "control/"
"""Before a wish's id, the part of a position that says that it was taken up, or refused."""
REFUSED = "refused"
"""What stands there of one that the source will not fulfil; anything else says that it was taken
up."""


@dataclass(frozen=True, slots=True)
class Control:
    """A wish from `__headwater_control`; once done, `control/<id>` belongs into a position."""

    id: str
    kind: str
    table: TableId | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far the reading of what was there before has come, for one table."""

    table: TableId
    rows: int
    rows_expected: int | None = None
    bytes: int | None = None
    bytes_expected: int | None = None
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure of the source's that users watch, such as the write-ahead log that it retains."""

    name: str
    """A metric's name: `retained_wal_bytes`."""
    value: int
    limit: int | None = None
    """From where on it is too much."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that users should know of a source that runs all the same."""

    name: str
    """What it is about; the next of the same name takes its place."""
    finding: Diagnostic | None
    """None takes it back."""


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Of a local disk on which rows that are read come to lie."""

    users: Sequence[str]
    """Who keeps them there: the log, and sinks by their names."""
    bytes: int


SourceReport = SnapshotProgress | Gauge | Remark


class FormCheck(Protocol):
    """Whether the log may have rows of a table in this form, by the rules that hide columns."""

    async def __call__(
        self, schema: TableSchema, *, is_next: bool = False
    ) -> HeadwaterError | None:
        """Why not; None where it may. `is_next`: its rows come behind those of the forms that were
        asked for so before; else it is only looked at."""
        ...


async def anything_goes(schema: TableSchema, *, is_next: bool = False) -> None:
    """Where no rule hides anything."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source gets from the pipeline that it belongs to."""

    pipeline: str
    directory: Path
    """Relative paths are meant from here: the pipeline file's directory."""
    clock: Clock
    report: Callable[[SourceReport], None]
    schema_changes: Mapping[str, str] = field(default_factory=dict)
    """The policy per kind of change: what they are is in `headwater.connectors.schema_policies`."""
    settle_ms: int = 30_000
    """How long a table whose form was changed is left alone before it is read again."""
    free_space: Callable[[], Sequence[FreeSpace]] = tuple
    """On the disks of this machine that rows would go to."""
    until_end: bool = False
    """End the iteration once what is there now has been read, as `headwater run --once` wants."""
    refusal: FormCheck = anything_goes
    """Asked before the first row of each form is handed on, so that its table is held alone."""


class Source(Protocol):
    """Reads one external system. Ending the iteration must release every connection.

    A class that fulfils this has a `Settings` model and is made as `Class(settings, context)`;
    making one touches nothing outside.
    """

    def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        """Yields batches from just after `resume_from`; from the beginning when it is empty.
        Ends only when there can never be more."""
        ...

    async def acknowledge(self, positions: Positions) -> None:
        """Everything up to `positions` is durable in the log; the source may forget it."""
        ...

    async def control(self, control: Control) -> None:
        """Changes what the running iteration does: start or stop a snapshot, add a table."""
        ...

    async def discover(self) -> Sequence[TableSchema]:
        """The tables that would be captured, as they are now; changes nothing."""
        ...

    async def examine(self) -> Sequence[Diagnostic]:
        """What stands in the way, before anything is started; changes nothing."""
        ...

    async def drop(self) -> Sequence[str]:
        """Removes what this pipeline left at the source; says what that was."""
        ...


@runtime_checkable
class RowEstimating(Protocol):
    """A source that knows about how many rows its tables have without reading them. A large table's
    topic gets several partitions by that, once, when it is made."""

    async def row_estimates(self) -> Mapping[TableId, int]:
        """Of the tables that `discover` finds, as far as it is known; changes nothing."""
        ...


@runtime_checkable
class Resettable(Protocol):
    """A source that can read one table anew while the others go on, for `headwater drop`."""

    def parts_of(self, table: TableId) -> Sequence[str]:
        """The parts of its position without which the table is read like a new one."""
        ...


@runtime_checkable
class SourcePlanning(Protocol):
    """A source at which a run makes something, for `headwater plan`."""

    async def plan(self) -> Sequence[str]:
        """What a run would make or change there, as statements or sentences; changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """All tables of a source as they are at one position."""

    positions: Positions
    """Where that is: every change before it is in the rows, and none after. Empty where the
    source cannot say; then the rows are of about now."""
    rows: Callable[[TableId], AsyncIterator[TableChanges]]
    """The rows of a table as `READ`s under the schema that it has now, in any order."""
    sees_deletes: bool = True
    """Whether what is deleted at the source is ever deleted from the log."""
    unfit: Callable[[TableId], Sequence[TableChanges]] = lambda _: ()
    """Rows with values that no column of ours holds, which `rows` left out when it was last
    followed to its end for that table: their keys, null where it is the key that cannot be read,
    and nulls."""
    has_left: Callable[[TableId], bool] = lambda _: False
    """Whether the source has no such table any more, or captures it no more: what was written of it
    stays as it was."""
    has_changes_since: Callable[[Positions], Awaitable[bool | None]] | None = None
    """Whether any row was changed between those positions and these: a source's place may move on
    without that. None while somebody follows the source, who then comes here by himself."""


@runtime_checkable
class Resuming(Protocol):
    """A source that can say before it runs whether it can go on where the log says it stands."""

    async def examine_position(
        self, stored: Callable[[], Awaitable[Positions]]
    ) -> Sequence[Diagnostic]:
        """What stands in the way of going on from `stored`, which is empty before the first run;
        nothing that `examine` says. It is asked for within, as the source may be running
        meanwhile: what was confirmed to the outside system before is never beyond it. Changes
        nothing."""
        ...


@runtime_checkable
class Replacing(Protocol):
    """A source that finds out itself when a table has another key, and reads it again."""

    def replaces_tables(self) -> bool:
        """Whether its settings let it."""
        ...


@dataclass(frozen=True, slots=True)
class DdlOutcome:
    """What DDL of one table would lead to."""

    table: TableId
    statement: str
    outcome: str
    """In the words of docs/schema-changes.md: `followed`, `read again`, `new key`, `new topic`,
    `left out`, `held`."""
    why: str
    cost: str = ""
    """Of reading it again, in words."""
    held: str = ""
    """What keeps it from being read again by itself."""
    schema: TableSchema | None = None
    """The table's form after it; None where targets are not concerned."""


@runtime_checkable
class Rehearsing(Protocol):
    """A source at which DDL can be tried without changing or locking a table, for `headwater plan
    --ddl`."""

    async def rehearse(self, statements: Sequence[str]) -> Sequence[DdlOutcome]:
        """Raises ConfigError or SourceRejected for statements that cannot be tried."""
        ...


class Snapshotable(Protocol):
    """A source whose tables can be read at one position, beside what is running, for `headwater
    verify`."""

    def snapshot(self, reached: Positions) -> AbstractAsyncContextManager[SourceSnapshot]:
        """`reached` is where the log stands; the snapshot is of then or later. Nothing stays at
        the source when the context ends."""
        ...
