"""The `tests:` of a pipeline file: given changes through its transforms, without any system."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, RecordsRejected
from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.file.spec import GivenChange, PipelineTest
from headwater.pipelines.terminal.record_lines import to_json_value
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.before_log import MasksAndDrops
from headwater.pipelines.transforms.columns import parsed_type

OPERATIONS = {
    "r": Operation.READ,
    "c": Operation.INSERT,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
}
ExpectedRow = dict[str, Any]
ExpectedKey = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableDifference:
    """A table of the target that did not become what was expected."""

    table: str
    expected: list[ExpectedRow]
    found: list[ExpectedRow]
    """Only columns that are expected of some row; all where no row is."""


@dataclass(frozen=True, slots=True)
class ExampleResult:
    name: str
    differences: tuple[TableDifference, ...] = ()
    rejected: tuple[str, ...] = ()
    """Why records would have gone to the dead-letter topic."""
    error: str = ""

    @property
    def is_passed(self) -> bool:
        return not self.differences and not self.error


class WorkedExamples:
    """Runs tests one after the other; what they share is the pipeline and not a single row."""

    def __init__(
        self, before_log: MasksAndDrops, after_log: RowTransforms, wire: WireSettings
    ) -> None:
        self._before_log, self._after_log = before_log, after_log
        if wire.value.endswith("avro"):  # needs a registry, which is a system
            wire = wire.model_copy(update={"value": "debezium-json", "registry": ""})
        self._wire = wire

    def run(self, test: PipelineTest) -> ExampleResult:
        target, rejected = MirroredTables(), list[str]()
        try:
            for changes in changes_of_test(test.given):
                for transformed in self._through(changes, rejected):
                    target.apply(transformed)
        except HeadwaterError as error:
            return ExampleResult(test.name, rejected=tuple(rejected), error=str(error))
        differences = [
            difference
            for table, expected in test.expect.items()
            if (difference := compare(table, expected, target.rows(table)))
        ]
        return ExampleResult(test.name, tuple(differences), tuple(rejected))

    def _through(self, changes: TableChanges, rejected: list[str]) -> list[TableChanges]:
        """As in the runtime: rejected rows are named, and the others go on."""
        changes = self._round_trip(self._before_log.apply(changes))
        while len(changes):
            try:
                return self._after_log.apply(changes)
            except RecordsRejected as error:
                rejected += [f"{error.problem}: {reason}" for reason in error.reasons.values()]
                offsets = changes.log_offsets
                assert offsets is not None, "records are rejected by their offsets"
                stay = [offset not in error.reasons for offset in offsets.to_pylist()]
                changes = changes.filter(pa.array(stay))
        return []

    def _round_trip(self, changes: TableChanges) -> TableChanges:
        """As records and back, so that a test sees what the log's format makes of a value."""
        topic = str(changes.schema.table)
        if not changes.is_truncate:
            codec = codec_for(self._wire, topic=topic)
            encoded = codec.encode(changes, now_us=0)
            is_change = encoded.values.is_valid()
            keys, values = encoded.keys.filter(is_change), encoded.values.filter(is_change)
            changes = codec.decode(keys, values, changes.schema)
        return replace(
            changes,
            log_partition=TopicPartition(topic, 0),
            log_offsets=pa.array(range(len(changes)), pa.int64()),
        )


def changes_of_test(given: Sequence[GivenChange]) -> Iterator[TableChanges]:
    """Runs of changes of one table; a changed key is a delete and an insert."""
    schemas = {name: _schema(name, _of(given, name)) for name in {each.table for each in given}}
    waiting: list[tuple[str, Operation, ExpectedRow]] = []
    for change in given:
        is_apart = bool(waiting) and change.table != waiting[0][0]
        if waiting and (is_apart or change.op == "t" or waiting[0][1] is Operation.TRUNCATE):
            yield _changes(schemas[waiting[0][0]], waiting)
            waiting = []
        waiting += _operations(change, schemas[change.table].key)
    if waiting:
        yield _changes(schemas[waiting[0][0]], waiting)


def _of(given: Sequence[GivenChange], table: str) -> list[GivenChange]:
    return [each for each in given if each.table == table]


def _operations(change: GivenChange, key: ExpectedKey) -> list[tuple[str, Operation, ExpectedRow]]:
    operation, before, after = OPERATIONS[change.op], change.before or {}, change.after or {}
    if operation is Operation.DELETE:
        return [(change.table, operation, before or after)]
    moved = operation is Operation.UPDATE and any(
        name in before and before[name] != after.get(name) for name in key
    )
    if moved:
        return [
            (change.table, Operation.DELETE, before),
            (change.table, Operation.INSERT, after),
        ]
    return [(change.table, operation, after)]


def _schema(name: str, given: Sequence[GivenChange]) -> TableSchema:
    rows = [row for change in given for row in (change.before, change.after) if row]
    names = list(dict.fromkeys(column for row in rows for column in row))
    types = {column: text for change in given for column, text in change.types.items()}
    key = next((change.key for change in given if change.key), ())
    if not key:
        key = ("id",) if "id" in names else tuple(names[:1])
    if strange := (set(key) | set(types)) - set(names):
        raise ConfigError("no given row has this column", table=name, column=min(strange))
    namespace, _, table = name.rpartition(".")
    columns = []
    for column in names:
        values = [row[column] for row in rows if column in row]
        kind = parsed_type(types[column]) if column in types else _infer(values, name, column)
        columns.append(Column(column, kind))
    return TableSchema(TableId(namespace, table), tuple(columns), tuple(key))


def _infer(values: list[Any], table: str, column: str) -> pa.DataType:
    try:
        kind = pa.array(values).type
    except pa.ArrowException:
        raise ConfigError(
            "the given values of a column are of different types",
            hint=f"name the type: types: {{{column}: string}}",
            table=table,
            column=column,
        ) from None
    return pa.string() if pa.types.is_null(kind) else kind


def _changes(
    schema: TableSchema, given: Sequence[tuple[str, Operation, ExpectedRow]]
) -> TableChanges:
    columns = [
        _values([row.get(column.name) for _, _, row in given], column, schema)
        for column in schema.columns
    ]
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        operations=pa.array([int(operation) for _, operation, _ in given], pa.uint8()),
        source=source_times(0),
    )


def _values(values: list[Any], column: Column, schema: TableSchema) -> pa.Array:
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, TypeError):
        pass
    try:  # as text: `2026-01-31` as a date, `12.50` as a decimal
        texts = [None if value is None else str(value) for value in values]
        return pa.array(texts, pa.string()).cast(column.type)
    except pa.ArrowException:
        raise ConfigError(
            "a given value is not of its column's type",
            table=str(schema.table),
            column=column.name,
            type=str(column.type),
        ) from None


class MirroredTables:
    """Tables as a mirroring sink would leave them: the newest row of every key."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[ExpectedKey, ExpectedRow]] = {}

    def rows(self, table: str) -> list[ExpectedRow]:
        rows = self._tables.get(table, {})
        return [rows[key] for key in sorted(rows, key=_sortable)]

    def apply(self, changes: TableChanges) -> None:
        rows = self._tables.setdefault(str(changes.schema.table), {})
        if changes.is_truncate:
            where = changes.truncated_where.items()
            for key in [key for key, row in rows.items() if where <= row.items()]:
                del rows[key]
            return
        for operation, row in zip(
            changes.operations.to_pylist(), changes.rows.to_pylist(), strict=True
        ):
            key = tuple(row[name] for name in changes.schema.key) or (len(rows),)
            if operation == Operation.DELETE:
                rows.pop(key, None)
            else:
                rows[key] = row


def _sortable(key: ExpectedKey) -> tuple[tuple[bool, Any], ...]:
    return tuple(
        (value is not None, value if isinstance(value, int) else str(value)) for value in key
    )


def compare(
    table: str, expected: Iterable[Mapping[str, Any]], found: Sequence[ExpectedRow]
) -> TableDifference | None:
    """Compares only the expected columns of each row; returns None when all are as expected."""
    wanted = [dict(row) for row in expected]
    if len(wanted) == len(found) and all(map(_has, found, wanted)):
        return None
    columns = {name for row in wanted for name in row}
    return TableDifference(
        table,
        [to_json_value(row) for row in wanted],
        [
            to_json_value(
                {name: value for name, value in row.items() if not columns or name in columns}
            )
            for row in found
        ],
    )


def _has(row: ExpectedRow, expected: ExpectedRow) -> bool:
    return all(name in row and _same(row[name], value) for name, value in expected.items())


def _same(found: Any, expected: Any) -> bool:
    """YAML says numbers, texts and lists; what a column holds can be more precise than that."""
    if isinstance(found, Decimal) and isinstance(expected, int | float | str):
        try:
            return found == Decimal(str(expected))
        except InvalidOperation:
            return False
    if isinstance(found, datetime) and isinstance(expected, str):
        return _same_time(found, expected)
    if isinstance(found, date | time | bytes):
        return bool(to_json_value(found) == str(expected))
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and _has(found, expected)
    return isinstance(found, bool) == isinstance(expected, bool) and bool(found == expected)


def _same_time(found: datetime, expected: str) -> bool:
    try:
        other = datetime.fromisoformat(expected)
    except ValueError:
        return False
    return other.replace(tzinfo=other.tzinfo or found.tzinfo) == found
