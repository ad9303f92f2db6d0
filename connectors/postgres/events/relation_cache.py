"""The relations of the stream: their descriptions by the server, completed from the catalog."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from headwater.connectors.postgres.catalog import CapturedTable, Catalog
from headwater.connectors.postgres.discovery import wal_end
from headwater.connectors.postgres.events.captured_relation import (
    CapturedRelation,
    NumberedRelation,
    capture_of,
    has_new_labels,
    labels_of,
    table_of,
)
from headwater.connectors.postgres.events.lookup import LookupConnection
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.publication.replica_identity import RefusedTable
from headwater.connectors.postgres.schema_history import column_numbers
from headwater.connectors.postgres.schema_history.column_numbers import ColumnNames, NamedColumn
from headwater.connectors.postgres.schema_history.schema_monitor import FormWatch
from headwater.connectors.postgres.schema_history.table_definition import (
    LOST_KEY,
    OTHER_KEY,
    RENAMED_LABEL,
    Cause,
)
from headwater.connectors.postgres.schema_history.table_renames import NOBODY, TableNames
from headwater.connectors.postgres.server.connection import in_our_words
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.connectors.postgres.wal.wal_batch import Relation, RowChanges
from headwater.connectors.schema_changes import CHANGE_KEY, CHANGE_TYPE, RENAMED
from headwater.connectors.source import FormCheck, anything_goes
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableId, TableSchema

logger = logging.getLogger(__name__)


class TableReread(NamedTuple):
    """A change of a table that is not in the stream."""

    cause: Cause
    after: int
    """The change is before this position of the write-ahead log."""


class NextProgress(Protocol):
    """Returns the progress of a table that has changed before a position; its present columns are
    None if it is gone."""

    def __call__(
        self, oid: int, table: CapturedTable | None, cause: Cause, after: int
    ) -> TableSnapshotProgress: ...


def _read_again(
    oid: int, table: CapturedTable | None, cause: Cause, after: int
) -> TableSnapshotProgress:
    before = TableSnapshotProgress(oid=oid)
    return before.to_be_read_again(cause.why, cause.kinds, after=after)


class CapturedRelations:
    """Follows the tables through changes of their form, in the order of the stream."""

    def __init__(
        self,
        questions: LookupConnection,
        catalog: Catalog,
        tables: Iterable[CapturedTable],
        keys: KeyHistory,
        names: TableNames,
        forms: FormWatch,
        *,
        refused: Iterable[RefusedTable] = (),
        held: Iterable[CapturedTable] = (),
        column_names: ColumnNames | None = None,
        may_replace: bool = True,
        told: Callable[[RefusedTable], None] | None = None,
        refusal: FormCheck = anything_goes,
    ) -> None:
        """`refused`: tables that are left out. `held`: tables that have lost their key.
        `may_replace`: whether a table with another key, or with missed changes, can be read again.
        `told` is called for each table that is left out from a change on."""
        self._questions, self._catalog, self._book = questions, catalog, catalog.book
        self._keys, self._names, self._forms = keys, names, forms
        self._numbered: dict[int, NumberedRelation] = {}
        self._column_names = column_names or ColumnNames()
        self._chosen = Patterns(catalog.patterns)
        self._tables = {each.oid: each for each in tables}
        self._known: dict[int, tuple[Relation, CapturedRelation | None]] = {}
        self._nullable: dict[int, frozenset[str]] = {}
        self._labels_seen: set[int] = set()
        self._dropped: set[int] = set()
        """Tables that a look-up did not find; their last known form stays valid."""
        self._left_out: set[int] = set()
        self.may_replace = may_replace
        self._rereads: dict[int, TableReread] = {}
        self.next_progress: NextProgress = _read_again
        self.note_unknown_ids: Callable[[int], None] = lambda oid: None
        """Called for each batch whose rows are written without the ids of all columns."""
        self._lost_columns: dict[int, TableReread] = {}
        """Columns that were renamed meanwhile, until the ids of the present columns are known."""
        self._told: dict[str, str] = {}
        self._refused, self._tell = {each.oid for each in refused}, told
        self._refusal, self._admitted = refusal, dict[int, TableSchema]()
        self._held = set[int]()
        for each in held:
            self.hold(each.oid)
        self.has_new_form = False
        """Whether the stream had a relation with another form; the caller resets it."""

    def rekey(self, schema: TableSchema) -> Positions:
        """Emits later changes of the table under its present key; returns the parts to store with
        the start of its re-read, as another topic begins there."""
        for oid, table in [*self._tables.items()]:
            if table.table == schema.table:
                self._keys.learn_of(oid, schema)
                del self._tables[oid]
                self._known.pop(oid, None)
        return self._keys.news()

    def hold(self, oid: int) -> None:
        """Leaves out changes of the table until it has a key and was read again."""
        self._held.add(oid)
        self._known.pop(oid, None)
        self._keys.learn(oid, ())

    def holds(self, oid: int) -> bool:
        return oid in self._held

    def let_go(self, oid: int) -> None:
        """Follows the table again, which has a key: its changes continue after its rows."""
        self._held.discard(oid)
        self._tables.pop(oid, None)

    def news(self, lsn: int, readings: Positions) -> Positions:
        """Returns parts to store with the position `lsn`. A new form is stored only together
        with the progress in `readings` of its table, because the table may need a re-read."""
        told, self._told = self._told, {}
        names, kept = self._names.news(), self._names.positions_of_snapshot(readings)
        return {**self._keys.news(), **names, **kept, **self._forms.take_passed(lsn), **told}

    def positions_of_snapshot(self, positions: Positions, lsn: int) -> Positions:
        """Returns parts to store with rows of an incremental snapshot, at this position of the
        stream. A batch without a position continues in the next one."""
        kept = self._names.positions_of_snapshot(positions)
        return {**kept, **self._forms.take_passed(lsn)} if kept else kept

    async def of(self, relation: Relation, lsn: int) -> CapturedRelation | None:
        """Returns None for a published table that the file leaves out, and for a dropped table
        whose key is unknown. `lsn`: of a change under this relation."""
        capture = await self._form_of(relation)
        if capture is None:
            return None
        if await self._number(relation, lsn):
            capture = self._again(relation)
        is_certain = self._numbered[relation.oid].is_certain
        if not is_certain:
            self.note_unknown_ids(relation.oid)
        if (lost := self._lost_columns.pop(relation.oid, None)) is not None:
            cause = lost.cause._replace(is_in_place=is_certain)
            self._read_again(relation.oid, capture.schema.table, lost._replace(cause=cause))
        return capture

    async def _number(self, relation: Relation, lsn: int) -> bool:
        """Whether its columns have other numbers than before. The server sends a relation again
        after each change of the form, even if the relation stays the same."""
        before = self._numbered.get(relation.oid)
        then = self._forms.at(relation.oid, lsn)
        is_same = before is not None and before.relation is relation
        if before is not None and is_same and (before.is_certain or before.then is then):
            return False
        table = self._tables.get(relation.oid)
        now = await column_numbers.look(await self._questions.connection(), relation.oid)
        numbers = column_numbers.numbers_of(
            relation, then, now, is_whole=table is not None and table.has_all_columns
        )
        missing = {each.number: each.missing for each in now if each.missing is not None}
        missing |= self._forms.missing_of(relation.oid)
        self._numbered[relation.oid] = NumberedRelation(relation, then, numbers, missing)
        return before is None or before.numbers != numbers or before.relation != relation

    async def _form_of(self, relation: Relation) -> CapturedRelation | None:
        known = self._known.get(relation.oid)
        if known is not None and (known[0] is relation or known[0] == relation):
            return known[1]
        if relation.oid in self._refused or relation.oid in self._held:
            return None
        name = str(table_of(relation))
        is_chosen = self._chosen.matches(name)
        self._names.saw(relation.oid, name, is_chosen=is_chosen)
        if not is_chosen:
            self._known[relation.oid] = (relation, None)
            return None
        self.has_new_form |= known is not None
        if not self._is_as_looked_up(relation):
            await self._look(relation)
        if relation.oid in self._refused:
            return None
        names = [each.name for each in relation.columns]
        if self.may_replace and self._column_names.differ(relation.oid, names):
            await self._look_for_lost_columns(relation, names)
        capture = self._remember(relation)
        if capture is None:
            self._leave_out(relation)
            return None
        by_name = _numbers_by_name(relation, self._tables.get(relation.oid))
        numbered = map(NamedColumn, names, by_name)
        self._column_names.saw(relation.oid, [*numbered])
        return await self._under_its_key(relation, capture)

    async def _under_its_key(
        self, relation: Relation, capture: CapturedRelation
    ) -> CapturedRelation | None:
        """Returns None if records with another key, or without one, would enter the topic."""
        if self._has_lost_key(relation.oid, capture.schema):
            await self._lose_key(relation.oid, capture.schema)
            return None
        if await self._awaits_replacement(relation, capture.schema):
            self._known[relation.oid] = (relation, None)
            return None
        self._keys.learn_of(relation.oid, capture.schema)
        return capture

    async def _awaits_replacement(self, relation: Relation, schema: TableSchema) -> bool:
        """Whether changes are left out because their key differs from that of the table's
        topic: all rows are read after them, into another topic."""
        oid = relation.oid
        before = self._keys.of(oid)
        if self._has_key_of_its_own(oid, schema):
            return True  # with the next start, as the name tells
        if before is None or not (schema.key and self.may_replace):
            return False
        if self._keys.is_key_of(oid, schema):
            return False
        if before and before != schema.key and self._catalog.chooses_key(schema.table):
            return False
        await self._look(relation)  # the columns may be those of the last look
        if oid not in self._refused:
            self._read_again(oid, schema.table, TableReread(Cause(OTHER_KEY, (CHANGE_KEY,)), 0))
        return True

    def _has_key_of_its_own(self, oid: int, schema: TableSchema) -> bool:
        """Whether the topic of the name has another table's records, under another key."""
        owner = self._names.owner_of(str(schema.table))
        if not self.may_replace or owner in (None, oid):
            return False
        if owner == NOBODY:  # what is still to come of a former table is under the topic's key
            return self._keys.of(oid) is None
        if self._keys.of(owner) is None:
            return False
        return not self._keys.is_key_of(owner, schema)

    def _has_lost_key(self, oid: int, schema: TableSchema) -> bool:
        return self.may_replace and not schema.key and bool(self._keys.of(oid))

    async def _lose_key(self, oid: int, schema: TableSchema) -> None:
        self.hold(oid)
        after = await wal_end(await self._questions.connection())
        self._read_again(oid, schema.table, TableReread(Cause(LOST_KEY, (CHANGE_KEY,)), after))

    async def _look_for_lost_columns(self, relation: Relation, names: Sequence[str]) -> None:
        """Requests a re-read: rows written while a column had another name lack its value."""
        await self._look(relation)
        table = self._tables.get(relation.oid)
        if table is None or table.table != table_of(relation):
            return
        if why := self._column_names.why_read_again(relation.oid, names, table):
            after = await wal_end(await self._questions.connection())
            self._lost_columns[relation.oid] = TableReread(
                Cause(why, RENAMED, renamed=tuple({*names, *table.schema.names})), after
            )

    def _read_again(self, oid: int, table: TableId, again: TableReread) -> None:
        self._rereads[oid] = again
        progress = self.next_progress(oid, self._tables.get(oid), again.cause, again.after)
        self._told[part_of(table)] = progress.text()

    def take_rereads(self) -> list[tuple[CapturedTable, TableReread]]:
        """Returns existing tables that need a re-read since the last call."""
        taken, self._rereads = self._rereads, {}
        return [(self._tables[oid], each) for oid, each in taken.items() if oid in self._tables]

    async def check_labels(
        self, rows: pa.RecordBatch, capture: CapturedRelation, *, since: int, until: int
    ) -> None:
        """Requests a re-read if labels of these rows may have other names by now. The rows were
        written after `since`, and committed before `until`."""
        names, oid, table = labels_of(rows, capture), capture.relation.oid, capture.schema.table
        if self._forms.explains(oid, table, names, since=since, until=until):
            return
        connection = await self._questions.connection()
        await self._forms.look_and_tell(connection)
        if self._forms.explains(oid, table, names, since=since, until=until):
            return
        after = await wal_end(connection)
        self._forms.covered[oid] = after
        if self.may_replace:
            cause = Cause(RENAMED_LABEL, (CHANGE_TYPE,))
            self._read_again(oid, table, TableReread(cause, after))
        else:
            logger.warning(
                "%s differs from its source, as `snapshot.mode` is never: %s", table, RENAMED_LABEL
            )

    async def fitting(self, part: RowChanges) -> CapturedRelation | None:
        """Returns the capture that fits these changes."""
        capture = await self.of(part.relation, int(part.lsns[0]))
        if capture is None:
            return None
        if has_new_labels(part, capture) and part.relation.oid not in self._labels_seen:
            with in_our_words("the types cannot be looked up"):
                await self._book.reload(await self._questions.connection())
            capture = self._again(part.relation)
            if has_new_labels(part, capture):  # a label with a comma, or renamed since
                self._labels_seen.add(part.relation.oid)
        if names := capture.null_where_none_may_be(part):
            known = self._nullable.get(part.relation.oid, frozenset())
            self._nullable[part.relation.oid] = known | names
            capture = self._again(part.relation)
        return capture

    def _remember(self, relation: Relation) -> CapturedRelation | None:
        capture = capture_of(
            relation,
            self._tables.get(relation.oid),
            self._book,
            key_before=self._keys.of(relation.oid),
            nullable=self._nullable.get(relation.oid, frozenset()),
            numbered=self._numbered.get(relation.oid),
        )
        self._known[relation.oid] = (relation, capture)
        return capture

    def _again(self, relation: Relation) -> CapturedRelation:
        capture = self._remember(relation)
        assert capture is not None, "a key that could be told can be told again"
        return capture

    def _leave_out(self, relation: Relation) -> None:
        """Leaves out a table without an identifiable key, whose topic has records with one."""
        table = table_of(relation)
        if relation.oid not in self._dropped:
            problem = "the key that it had, before its columns were changed, cannot be told."
            self.refuse(RefusedTable(relation.oid, table, problem, ""))
            return
        if relation.oid not in self._left_out:
            self._left_out.add(relation.oid)
            logger.warning(
                "changes of %s are left out: it was dropped before they were read,"
                " and the stream does not say what its key was",
                table,
            )

    async def admits(self, schema: TableSchema, *, is_next: bool = True) -> bool:
        """Whether rows of this form may enter the log; if not, their table is left out from now on.
        `is_next`: these rows come after those of all earlier forms."""
        if schema.id in self._refused:
            return False
        known = self._admitted.get(schema.id)
        if known is not None and (known is schema or known == schema):
            return True
        if (error := await self._refusal(schema, is_next=is_next)) is not None:
            self.refuse(RefusedTable(schema.id, schema.table, error.statement, error.hint))
            return False
        if is_next:
            self._admitted[schema.id] = schema
        return True

    def refuse(self, refused: RefusedTable) -> None:
        """Leaves out later changes of the table. The next position says so: the table is truncated
        and read again."""
        if not self.may_replace or self._tell is None:
            raise SourceRejected(
                "a table cannot be captured any more, and none may be read again",
                table=str(refused.table),
                why=refused.problem,
                hint=f"{refused.hint} And let `snapshot.mode` be another than never",
            )
        self._refused.add(refused.oid)
        self._known.pop(refused.oid, None)
        self._names.leaves(str(refused.table))
        self._tell(refused)

    def _is_as_looked_up(self, relation: Relation) -> bool:
        table = self._tables.get(relation.oid)
        if table is None or table.table != table_of(relation):
            return False
        there = {(each.name, each.type_oid, each.type_modifier) for each in table.columns}
        return all((each.name, *each[2:]) in there for each in relation.columns)

    async def _look(self, relation: Relation) -> None:
        with in_our_words("a table cannot be looked up", table=str(table_of(relation))):
            connection = await self._questions.connection()
            found, refused = await self._catalog.told_of(connection, [relation.oid])
            await self._book.learn(connection, {each.type_oid for each in relation.columns})
        self._tables |= {each.oid: each for each in found}
        for each in refused:
            self.refuse(each)
        if not (found or refused):
            self._dropped.add(relation.oid)
        self._nullable.pop(relation.oid, None)
        self._labels_seen.discard(relation.oid)


def _numbers_by_name(relation: Relation, table: CapturedTable | None) -> tuple[int | None, ...]:
    """Returns the present columns of these names in the catalog, which may be other columns."""
    columns = () if table is None else table.columns
    known = {(each.name, each.type_oid): each.number for each in columns}
    return tuple(known.get((each.name, each.type_oid)) for each in relation.columns)
