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
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableFormChange:
    """A table whose form has changed."""

    table: TableId
    form: TableForm
    why: str
    """Why its rows have to be read again; empty where the stream and targets follow."""
    after: int
    """The change is before this place in the write-ahead log."""
    kinds: tuple[str, ...] = ()
    """Those of `headwater.connectors.schema_policies`, where it is to be read again."""
    captured: CapturedTable | None = None
    """As it is captured now, where it is to be read again."""


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

    async def parts_at_start(
        self, positions: Positions, connection: PgConnection
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
            if each.why and stored is not None:
                before = replace(TableSnapshotProgress.parse(stored), oid=each.form.oid)
                again = before.to_be_read_again(each.why, each.kinds, after=each.after)
                found[progress.part_of(each.table)] = again.text()
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
            _as_captured(
                TableFormChange(table, form, causes[table].why, after, causes[table].kinds),
                now.get(form.oid),
            )
            for table, form in found.items()
        ]

    async def look_and_tell(self, connection: PgConnection) -> None:
        if self.told is not None and (new := await self.look(connection)):
            self.told(new)

    def _cause(self, table: TableId, form: TableForm) -> Cause:
        before = self.known.get(table)
        cause = Cause("", ()) if before is None else why_read_again(before, form)
        if not cause.why or self.may_read:
            return cause
        logger.warning(
            "%s differs from its source, as `snapshot.mode` is never: %s", table, cause.why
        )
        return cause._replace(why="")


def _as_captured(new: TableFormChange, captured: CapturedTable | None) -> TableFormChange:
    """In place of a primary key that went the file may choose another one."""
    has_key = captured is not None and bool(captured.schema.key)
    why = OTHER_KEY if new.why == LOST_KEY and has_key else new.why
    return replace(new, why=why, captured=captured)
