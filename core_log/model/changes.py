"""Changes of rows as columns: sources emit them, the log keeps them, sinks apply them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema

Positions = Mapping[str, str]
"""Named parts of a source position (`stream`, `file/a.csv`); only the source understands them."""

ColumnOrValue: TypeAlias = pa.Array | str | int | bool | None
"""A column with one value per change, or one value for all of them."""


class Operation(IntEnum):
    READ = 0  # a row seen by a snapshot, not a change
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    REREAD = 5  # a row seen beside the stream, which may be as it was before


OP_CODES = ("r", "c", "u", "d", "t", "r")
"""Debezium's code (`op`) of every `Operation`."""
HAVE_NO_ROW = pa.array([Operation.DELETE, Operation.TRUNCATE], pa.uint8())


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table under one schema, in the order in which they happened.

    A change of key is a DELETE of the old key and an INSERT of the new one. A TRUNCATE is alone in
    its `TableChanges`, as one row of nulls or of the values in `truncated_where`.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    """The row after each change; for a delete the known columns of the deleted row, at least the
    key. Its columns are those of `schema`, in the same order and types."""
    operations: pa.UInt8Array
    source: Mapping[str, ColumnOrValue]
    """Debezium's `source` block in the order of its fields; `source_times` makes its times. Changes
    read from the log have only `ts_us`."""
    commits: ColumnOrValue = ""
    """The source's commit of each change: an LSN, a transaction, a file's name."""
    indexes: pa.Int64Array | None = None
    """Index of each change in its commit, counted from 0; None if it is not counted."""
    before: pa.StructArray | None = None
    """Rows before an update, if the source sent them; null otherwise."""
    transaction: Mapping[str, ColumnOrValue] | None = None
    """Debezium's `transaction` block."""
    moves: pa.BooleanArray | None = None
    """True for a DELETE and the INSERT directly after it that are one change of key. They stay
    neighbours until they are in the log, where each one's headers name the other key."""
    headers: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    """Further headers of the records; null if a change has none of that name."""
    log_partition: TopicPartition | None = None
    log_offsets: pa.Int64Array | None = None
    """The offset of each change in the log; None before it is written."""
    markers: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offset of a TRUNCATE's marker in each partition of its topic, when it was read back once
    for all of them."""

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def is_truncate(self) -> bool:
        return len(self) == 1 and self.operations[0].as_py() == Operation.TRUNCATE

    @property
    def truncated_where(self) -> dict[str, Any]:
        """Returns the columns and values that all truncated rows share, if a route merges several
        tables into one. Empty if every row is truncated."""
        [row] = self.rows.to_pylist()
        return {name: value for name, value in row.items() if value is not None}

    @property
    def in_every_partition(self) -> "Sequence[TableChanges]":
        """Returns one TRUNCATE for each partition that has its marker. A sink that stores offsets
        needs this: a row is older or newer than the marker of its own partition."""
        return [
            replace(self, log_partition=partition, log_offsets=pa.array([offset]), markers={})
            for partition, offset in self.markers.items()
        ] or [self]

    @property
    def keys(self) -> pa.RecordBatch:
        return self.rows.select(list(self.schema.key))

    @property
    def committed_us(self) -> pa.Int64Array:
        """Returns the commit time at the source of each change, in microseconds of Unix time."""
        times = self.source["ts_us"]
        if isinstance(times, pa.Array):
            return times
        return pa.repeat(pa.scalar(times, pa.int64()), len(self))

    def filter(self, mask: pa.BooleanArray) -> "TableChanges":
        """Returns the changes for which `mask` is true."""
        return self._map(lambda column: column.filter(mask))

    def take(self, indices: pa.Array) -> "TableChanges":
        """Returns the changes at `indices`, in that order."""
        return self._map(lambda column: column.take(indices))

    def slice(self, start: int, count: int) -> "TableChanges":
        """Returns `count` changes from `start` on, without copying."""
        return self._map(lambda column: column.slice(start, count))

    def _map(self, pick: Callable[[Any], Any]) -> "TableChanges":
        return replace(
            self,
            rows=pick(self.rows),
            operations=pick(self.operations),
            source=_map_columns(self.source, pick),
            commits=_map_column(self.commits, pick),
            indexes=_map_column(self.indexes, pick),
            before=_map_column(self.before, pick),
            transaction=None if self.transaction is None else _map_columns(self.transaction, pick),
            moves=_map_column(self.moves, pick),
            headers=_map_columns(self.headers, pick),
            log_offsets=_map_column(self.log_offsets, pick),
        )


@dataclass(frozen=True, slots=True)
class Reject:
    """A part of the source that cannot be read as a row, with the reason."""

    table: TableId
    content: bytes
    problem: str
    at: str
    """Its place in the source, as the header `headwater.at` has it: `orders.csv#17`."""


@dataclass(frozen=True, slots=True)
class EventMessages:
    """Events that belong to no table, as JSON: ends of transactions, logical messages,
    heartbeats."""

    kind: str
    """Last part of their topic's name: `transaction`, `message` or `heartbeat`."""
    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def of(
        cls, kind: str, keys: Sequence[Mapping[str, Any]], values: Sequence[Mapping[str, Any]]
    ) -> "EventMessages":
        texts = [[orjson.dumps(each) for each in column] for column in (keys, values)]
        return cls(kind, *(pa.array(each, pa.binary()) for each in texts))


def op_codes(operations: pa.Array) -> pa.StringArray:
    return pa.array(OP_CODES, pa.string()).take(operations)


class Phase(Enum):
    """The phase of the replacement of a table."""

    PENDING = "pending"  # the log may differ from the table from here on
    QUARANTINED = "held"  # the same, until a person starts the re-read
    STARTED = "started"  # every row is emitted from here on; a second start begins again
    COMPLETE = "complete"  # every row was emitted, as a READ or as a change
    GONE = "gone"  # the table is not captured any more: its rows in the log stay as they are


@dataclass(frozen=True, slots=True)
class Replacement:
    """The re-read of a whole table, beside its changes. A key that is not emitted between `STARTED`
    and `COMPLETE` no longer exists at the source."""

    schema: TableSchema
    phase: Phase
    why: str = ""
    """The reason, for users; if quarantined, also the command that starts the re-read."""
    commit: str = ""
    """When complete: the commit of the source to which the deletes of missing rows belong."""
    source: Mapping[str, ColumnOrValue] = field(default_factory=dict)
    """When complete: the `source` block of these deletes, one value per field."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A part of the source's stream that becomes readable as a whole."""

    tables: tuple[TableChanges, ...]
    positions: Positions
    """Changed parts of the source position, as of the last change of this batch. Empty while a
    transaction of the source is open, so that it stays one transaction of the log."""
    rejects: tuple[Reject, ...] = ()
    notices: tuple[EventMessages, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    """Replacements that start before the rows of this batch, or are complete after them. A batch
    with any of them has a position."""


def concat_changes(parts: Sequence[TableChanges]) -> TableChanges:
    """Returns one `TableChanges` of changes of one table under one schema that were read from the
    log."""
    if len(parts) == 1:
        return parts[0]
    offsets = [each.log_offsets for each in parts if each.log_offsets is not None]
    return replace(
        parts[0],
        rows=pa.Table.from_batches([each.rows for each in parts]).combine_chunks().to_batches()[0],
        operations=pa.concat_arrays([each.operations for each in parts]),
        source={"ts_us": pa.concat_arrays([each.committed_us for each in parts])},
        before=_join_images(parts),
        log_offsets=pa.concat_arrays(offsets) if offsets else None,
    )


def _join_images(parts: Sequence[TableChanges]) -> pa.StructArray | None:
    known = [each.before for each in parts if each.before is not None]
    if not known:
        return None
    return pa.concat_arrays(
        [
            pa.nulls(len(each), known[0].type) if each.before is None else each.before
            for each in parts
        ]
    )


def source_times(committed_us: int | pa.Int64Array) -> dict[str, ColumnOrValue]:
    """Returns the three fields of a commit time in Debezium's `source` block."""
    if isinstance(committed_us, int):
        return {
            "ts_ms": committed_us // 1_000,
            "ts_us": committed_us,
            "ts_ns": committed_us * 1_000,
        }
    return {
        "ts_ms": pc.divide(committed_us, 1_000),
        "ts_us": committed_us,
        "ts_ns": pc.multiply(committed_us, 1_000),
    }


def _map_columns(columns: Mapping[str, Any], pick: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: _map_column(column, pick) for name, column in columns.items()}


def _map_column(column: Any, pick: Callable[[Any], Any]) -> Any:
    return pick(column) if isinstance(column, pa.Array) else column
