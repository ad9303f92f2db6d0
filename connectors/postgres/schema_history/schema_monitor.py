"""Compares the forms of captured tables with those that changes went out under."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.discovery import wal_end
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.table_definition import (
    LOST_KEY,
    OTHER_KEY,
    Cause,
    TableForm,
    part_of,
    why_read_again,
)
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.snapshot import progress
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.schema_policies import allows_in_place
from headwater.connectors.source import SourceContext
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableFormChange:
    """A table whose form has changed."""

    table: TableId
    form: TableForm
    cause: Cause
    """What the stream does not bring of it; empty if it brings all."""
    after: int
    """The change is before this place in the write-ahead log."""
    captured: CapturedTable | None = None
    """As it is captured now, if the stream does not bring all."""


class SeenForms(NamedTuple):
    """A form that a table had at some moment, or has still."""

    at: int
    """Where the write-ahead log ended after that moment."""
    form: TableForm

    def text(self) -> str:
        return self.form.text(self.at)


@dataclass(slots=True)
class FormWatch:
    """Over the tables that one life of the source captures."""

    tables: Sequence[CapturedTable]
    catalog: Catalog
    known: dict[TableId, TableForm]
    """As it was seen last."""
    may_read: bool
    """False where the file says that no rows are ever read."""
    told: Callable[[Sequence[TableFormChange]], None] | None = None
    """Hears of what has changed; None until the stream is followed."""
    seen: dict[int, list[SeenForms]] = field(default_factory=dict)
    """By the table's number, oldest first: the last one that the stream has passed, and those that
    it has not."""
    unannounced: set[TableId] = field(default_factory=set)
    """Tables that change in place, until the log has a row of the new form."""
    untold: dict[int, TableId] = field(default_factory=dict)
    """Tables with forms that are to be told once the stream has passed them: a stored form is
    never of a later time than the stored position."""

    @classmethod
    def of(
        cls,
        positions: Positions,
        tables: Sequence[CapturedTable],
        catalog: Catalog,
        *,
        may_read: bool,
    ) -> "FormWatch":
        found = cls(tables, catalog, {}, may_read)
        for each in tables:
            said = positions.get(progress.part_of(each.table))
            if said is not None and TableSnapshotProgress.parse(said).follows:
                found.unannounced.add(each.table)
            if (text := positions.get(part_of(each.table))) is not None:
                form, at = TableForm.parse(text)
                found.known[each.table] = form
                if at is not None:
                    found.seen[form.oid] = [SeenForms(at, form)]
        return found

    def at(self, oid: int, lsn: int) -> TableForm | None:
        """The newest form that the table had before this place, as far as it is known."""
        return next(
            (each.form for each in reversed(self.seen.get(oid, ())) if each.at <= lsn), None
        )

    def take_passed(self, lsn: int) -> dict[str, str]:
        """Parts of the position: forms that the stream has passed since this was asked last."""
        found: dict[str, str] = {}
        for oid, table in [*self.untold.items()]:
            seen = self.seen[oid]
            passed = [each for each in seen if each.at <= lsn]
            if not passed:
                continue
            found[part_of(table)] = passed[-1].text()
            self.seen[oid] = seen[len(passed) - 1 :]
            if len(passed) == len(seen):
                del self.untold[oid]
        return found

    async def look_first(self, connection: PgConnection) -> None:
        """Before there is a slot, so that these forms are older than all that it brings."""
        self.known.clear()
        self.seen.clear()
        await self.look(connection)

    def missing_of(self, oid: int) -> dict[int, str]:
        """Returns the values of older rows by the columns' numbers, as arrays of one item."""
        return {
            column.number: column.missing
            for each in self.seen.get(oid, ())
            for column in each.form.attributes
            if column.missing is not None
        }

    async def parts_at_start(
        self, positions: Positions, connection: PgConnection, context: SourceContext
    ) -> dict[str, str]:
        """Parts of the position that say what changed while nobody looked, and which tables are
        to be read again for it. Tables that are read from their beginning need not be."""
        found: dict[str, str] = {}
        new = await self.look(connection)
        for oid, table in self.untold.items():
            if part_of(table) not in positions:
                found[part_of(table)] = self.seen[oid][0].text()
        for each in new:
            stored = positions.get(progress.part_of(each.table))
            if each.cause.why and stored is not None:
                before = replace(TableSnapshotProgress.parse(stored), oid=each.form.oid)
                following = next_progress(
                    before, each.captured, each.cause, after=each.after, context=context
                )
                found[progress.part_of(each.table)] = following.text()
        return found

    async def look(self, connection: PgConnection) -> list[TableFormChange]:
        """Those that differ from what is known, which they are from here on."""
        forms = await table_definition.look(connection, self.tables)
        found = {table: form for table, form in forms.items() if self.known.get(table) != form}
        if not found:
            return []
        after = await wal_end(connection)
        causes = {table: self._cause(table, form) for table, form in found.items()}
        oids = [form.oid for table, form in found.items() if causes[table].why]
        now = {each.oid: each for each in await self.catalog.tables_of(connection, oids)}
        # Nothing is awaited from here until the follower knows which tables are to be read again:
        # a position stored in between would have the new form alone.
        self.known |= found
        for table, form in found.items():
            self.seen.setdefault(form.oid, []).append(SeenForms(after, form))
            self.untold[form.oid] = table
        return [
            _as_captured(TableFormChange(table, form, causes[table], after), now.get(form.oid))
            for table, form in found.items()
        ]

    async def look_and_tell(self, connection: PgConnection) -> None:
        if self.told is not None and (new := await self.look(connection)):
            self.told(new)

    def _cause(self, table: TableId, form: TableForm) -> Cause:
        before = self.known.get(table)
        if before is None:
            return Cause("", ())
        cause = why_read_again(before, form, is_announced=table not in self.unannounced)
        if not cause.why or self.may_read:
            return cause
        logger.warning(
            "%s differs from its source, as `snapshot.mode` is never: %s", table, cause.why
        )
        return cause._replace(why="")


def _as_captured(new: TableFormChange, captured: CapturedTable | None) -> TableFormChange:
    """In place of a primary key that went the file may choose another one."""
    has_key = captured is not None and bool(captured.schema.key)
    cause = new.cause
    if cause.why == LOST_KEY and has_key:
        cause = cause._replace(why=OTHER_KEY)
    return replace(new, cause=cause, captured=captured)


def next_progress(
    before: TableSnapshotProgress,
    table: CapturedTable | None,
    cause: Cause,
    *,
    after: int,
    context: SourceContext,
) -> TableSnapshotProgress:
    """Returns the progress of a table that has changed: it follows in place if that is certain,
    else it is read again."""
    has_ids = before.is_done and before.has_ids
    if table is not None and has_ids and is_in_place(table, cause, context):
        return before.follow(cause.why, after=after)
    return before.to_be_read_again(cause.why, cause.kinds, after=max(after, before.after))


def is_in_place(table: CapturedTable, cause: Cause, context: SourceContext) -> bool:
    """Returns whether the log and all targets follow a change by the ids of columns, if the log has
    them. `table` is the present one."""
    if not (cause.is_in_place and table.schema.key):
        return False
    if not allows_in_place(cause.kinds, context.schema_changes):
        return False
    added = [column for column in table.schema.columns if column.id in cause.added]
    if any(column.missing is None for column in added):
        return False
    return context.follows_columns(table.table, cause.renamed)
