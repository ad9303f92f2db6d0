"""Compares the forms of captured tables with those that changes went out under."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.discovery import wal_end
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.enum_labels import (
    Labels,
    certain_names,
    labels_of,
)
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
from headwater.connectors.schema_changes import allows_in_place
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
    """The part of it that the stream does not bring; empty if it brings all."""
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

    def with_labels(self, labels: Labels) -> "SeenForms":
        """Returns it with labels that rows have got, except for those that it has itself."""
        own = labels_of(self.form.attributes)
        kept = {oid: label for oid, label in labels.items() if oid not in own}
        return self._replace(form=replace(self.form, labels=kept))


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
    looks: list[tuple[int, int]] = field(default_factory=list)
    """Where the write-ahead log ended after a look, and the horizon of it: the first one, the last
    one that the stream has passed, and later ones."""
    covered: dict[int, int] = field(default_factory=dict)
    """Tables, by their numbers, that are read again after this place."""
    _new_labels: dict[int, TableId] = field(default_factory=dict)
    """Tables with rows that have labels which no stored form has."""
    _turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A look that began earlier is not to end later: it would bring back older forms."""

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
            stored = TableSnapshotProgress() if said is None else TableSnapshotProgress.parse(said)
            if stored.follows:
                found.unannounced.add(each.table)
            if stored.reread:
                found.covered[each.oid] = stored.after
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
        newly = self._new_labels
        self._new_labels = {}
        found = {part_of(table): self.seen[oid][0].text() for oid, table in newly.items()}
        for oid, table in [*self.untold.items()]:
            seen = self.seen[oid]
            passed = [each for each in seen if each.at <= lsn]
            if not passed:
                continue
            last = passed[-1].with_labels(seen[0].form.labels)
            found[part_of(table)] = last.text()
            self.seen[oid] = [last, *seen[len(passed) :]]
            if len(passed) == len(seen):
                del self.untold[oid]
        passed_looks = [each for each in self.looks[1:] if each[0] <= lsn]
        self.looks = [*self.looks[:1], *self.looks[len(passed_looks) or 1 :]]
        return found

    async def look_first(self, connection: PgConnection) -> None:
        """Before there is a slot, so that these forms are older than all that it brings."""
        self.known.clear()
        self.seen.clear()
        self.looks.clear()
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
        async with self._turns:
            return await self._look(connection)

    async def _look(self, connection: PgConnection) -> list[TableFormChange]:
        forms = await table_definition.look(connection, self.tables)
        after = await wal_end(connection)
        found = {table: form for table, form in forms.items() if self.known.get(table) != form}
        causes = {table: self._cause(table, form) for table, form in found.items()}
        oids = [form.oid for table, form in found.items() if causes[table].why]
        now = {each.oid: each for each in await self.catalog.tables_of(connection, oids)}
        # Nothing is awaited from here until the follower knows which tables are to be read again:
        # a position stored in between would have the new form alone.
        self.known |= forms
        self.looks.append((after, min((each.horizon for each in forms.values()), default=0)))
        for table, form in found.items():
            if causes[table].why and not causes[table].is_in_place:
                self.covered[form.oid] = after
            self.seen.setdefault(form.oid, []).append(SeenForms(after, form))
            self.untold[form.oid] = table
        return [
            _as_captured(TableFormChange(table, form, causes[table], after), now.get(form.oid))
            for table, form in found.items()
        ]

    async def look_and_tell(self, connection: PgConnection) -> None:
        async with self._turns:
            if self.told is not None and (new := await self._look(connection)):
                self.told(new)

    def explains(
        self, oid: int, table: TableId, names: Mapping[int, Set[str]], *, since: int, until: int
    ) -> bool:
        """Whether labels of rows, by the types of their columns, have kept these names up to the
        last look; the log gets to know them. The rows were written after `since`, and committed
        before `until`. Rows that are read again later may have any."""
        now = self.known.get(table)
        if now is None or until <= self.covered.get(oid, 0):
            return True
        then = self.at(oid, since)
        horizon = max((at_look for at, at_look in self.looks if at <= since), default=0)
        horizon = max(horizon, 0 if then is None else then.horizon)
        for type_oid, said in names.items():
            labels = labels_of(now.attributes, type_oid)
            before = {} if then is None else labels_of(then.attributes, type_oid)
            if not labels:
                continue  # no column has this type any more
            if not said <= certain_names(before, labels, horizon):
                return False
            self._keep(oid, table, {k: each for k, each in labels.items() if each.name in said})
        return True

    def _keep(self, oid: int, table: TableId, labels: Labels) -> None:
        """Stores labels together with the first rows that have them: a later look shows only the
        names of that time."""
        if (seen := self.seen.get(oid)) is None:
            return
        newer = seen[0].with_labels({**seen[0].form.labels, **labels})
        if newer.form.labels != seen[0].form.labels:
            self.seen[oid], self._new_labels[oid] = [newer, *seen[1:]], table

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
