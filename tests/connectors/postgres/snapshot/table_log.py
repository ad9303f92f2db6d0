"""A log of one table in memory, which sees batches as the pipeline's log makes them readable."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.connectors.postgres.schema_history.table_definition import (
    TableForm,
    why_read_again,
)
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import SnapshotProgress, SourceContext, SourceReport
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import (
    ChangeBatch,
    Operation,
    Phase,
    Replacement,
    TableChanges,
)
from headwater.core_log.model.column_history import ColumnHistory, View, recall_columns
from headwater.core_log.model.table_schema import TableId, TableSchema
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest

FORMS, READINGS = "form/", "snapshot/"
Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(slots=True)
class Folded:
    """What a reader of the log would have: of every table its rows by key; of one without a key,
    its rows in the order in which they came."""

    positions: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Rows] = field(default_factory=dict)
    reads: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    """Rows that came by reading, not by the stream, by table and key."""
    truncates: int = 0
    renewed: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)
    """Of tables that are being read again as a whole, the keys that were emitted since."""
    keys: dict[str, Sequence[str]] = field(default_factory=dict)
    replacements: list[Replacement] = field(default_factory=list)
    schemas: dict[str, list[TableSchema]] = field(default_factory=dict)
    """The schemas of each table's topic, oldest first."""
    _written: dict[str, dict[tuple[Any, ...], int]] = field(default_factory=dict)
    """The index of the schema of each row."""
    _open: list[ChangeBatch] = field(default_factory=list)

    def take(self, batch: ChangeBatch) -> None:
        """Nothing is there before a position follows."""
        self._open.append(batch)
        if batch.positions:
            before = dict(self.positions)
            for each in self._open:
                self.positions |= each.positions
                self.replacements += each.replacements
                for begun in each.replacements:
                    if begun.phase is Phase.STARTED:
                        self._begin_again(begun.schema)
                for changes in each.tables:
                    self._apply(changes)
                for ended in each.replacements:
                    if ended.phase is Phase.COMPLETE:
                        self._drop_missing(name_of(ended.schema.table))
            self._open.clear()
            check_forms(before, self.positions)

    def killed(self) -> None:
        self._open.clear()

    @property
    def replaced(self) -> list[str]:
        """Returns the tables that were read again as a whole, in that order."""
        ended = [each for each in self.replacements if each.phase is Phase.COMPLETE]
        return [name_of(each.schema.table) for each in ended]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Returns the rows as readers of the log have them: under the newest schema."""
        history = ColumnHistory(self.schemas.get(table, []))
        written = self._written.get(table, {})
        found = [
            _viewed(row, self.schemas[table][written[place]], history.view(written[place]))
            for place, row in self.tables.get(table, {}).items()
        ]
        return sorted(found, key=repr)

    def _schema_index(self, schema: TableSchema) -> int:
        known = self.schemas.setdefault(name_of(schema.table), [])
        stored = recall_columns(schema, known[-1] if known else None)
        if not known or known[-1] != stored:
            known.append(stored)
        return len(known) - 1

    def _begin_again(self, schema: TableSchema) -> None:
        """Under another key it is another topic."""
        name = name_of(schema.table)
        if self.keys.get(name, schema.key) != schema.key:
            self.tables[name], self.schemas[name] = {}, []
        self.renewed[name], self.keys[name] = set(), schema.key

    def _drop_missing(self, table: str) -> None:
        renewed = self.renewed.pop(table)
        if not self.keys[table]:
            return  # it was emptied
        rows = self.tables.get(table, {})
        self.tables[table] = {key: row for key, row in rows.items() if key in renewed}

    def _apply(self, changes: TableChanges) -> None:
        name, key = name_of(changes.schema.table), changes.schema.key
        rows = self.tables.setdefault(name, {})
        of_topic = self.keys.setdefault(name, key)
        assert key == of_topic, (
            f"{name}: a record with the key {key} where the topic has {of_topic}"
        )
        index, written = self._schema_index(changes.schema), self._written.setdefault(name, {})
        for row, kind in zip(changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True):
            place = tuple(row[column] for column in key) if key else (len(rows),)
            if key and name in self.renewed:
                self.renewed[name].add(place)
            if kind == Operation.READ:
                self.reads.append((name, place))
            if kind == Operation.TRUNCATE:
                self.truncates += 1
                rows.clear()
            elif kind == Operation.DELETE:
                rows.pop(place, None)
            else:
                rows[place], written[place] = row, index


def _viewed(row: dict[str, Any], schema: TableSchema, view: View) -> dict[str, Any]:
    values = [row[schema.names[place]] for place in view.indices]
    values += [value.as_py() for value in view.values]
    return dict(zip(view.schema.names, values, strict=True))


def check_forms(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """A new form is never stored before its table is known to be read again: killed in between,
    nobody would ever do it."""
    for part, text in after.items():
        if part.startswith(FORMS) and part in before and before[part] != text:
            old, new = TableForm.parse(before[part])[0], TableForm.parse(text)[0]
            place = READINGS + part.removeprefix(FORMS)
            reading = TableSnapshotProgress.parse(after[place])
            is_pending = (
                bool(reading.reread or reading.follows) or reading.has_left or not reading.is_done
            )
            is_read_now = after[place] != before.get(place)
            assert is_pending or is_read_now or not why_read_again(old, new).why, part


def name_of(table: TableId) -> str:
    return table.name if table.namespace in ("", "public") else str(table)


def source_of(
    guest: Guest,
    *,
    report: Any = None,
    until_end: bool = False,
    clock: Clock | None = None,
    settle_ms: int = 30_000,
    **settings: Any,
) -> PostgresSource:
    snapshot = {"chunk_rows": 50, **settings.pop("snapshot", {})}
    given = {"url": guest.url, "tables": ["public.*"], "snapshot": snapshot, **settings}
    context = source_context(until_end=until_end, clock=clock)
    if report is not None:
        context = SourceContext(
            context.pipeline, context.directory, context.clock, report, until_end=until_end
        )
    context = replace(context, settle_ms=settle_ms)
    return PostgresSource(PostgresSettings.model_validate(given), context)


async def live(folded: Folded, source: PostgresSource, *, batches: int | None = None) -> None:
    """One life of the source: to its end, or until it is killed after so many batches."""
    async with aclosing(source.changes(dict(folded.positions))) as coming:
        async for batch in coming:
            folded.take(batch)
            if batches is not None:
                batches -= 1
                if batches <= 0:
                    break
    folded.killed()


async def until_equal(folded: Folded, guest: Guest, **settings: Any) -> None:
    """Everything up to now has been read."""
    await live(folded, source_of(guest, until_end=True, **settings))


def differing(folded: Folded, guest: Guest, table: str, part: str = "") -> dict[str, int]:
    """Rows that one of both has more often than the other: positive where that is the log. `part`:
    a query in brackets for that of the table which is captured."""
    found = Counter(map(repr, folded.rows(table)))
    found.subtract(map(repr, in_table(guest, part or table)))
    return {row: more for row, more in found.items() if more}


def in_table(guest: Guest, table: str) -> list[dict[str, Any]]:
    rows = guest.rows(f"SELECT to_json(t) FROM {table} t")
    return sorted((row for [row] in rows), key=repr)


@dataclass(slots=True)
class Told:
    """The newest progress of each table."""

    newest: dict[str, SnapshotProgress] = field(default_factory=dict)

    def __call__(self, told: SourceReport) -> None:
        if isinstance(told, SnapshotProgress):
            self.newest[told.table.name] = told
