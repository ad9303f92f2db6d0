"""Changes of rows in columns: what sources emit, the log keeps, and sinks consume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema

Positions = Mapping[str, str]
"""Named parts of where a source stands (`stream`, `file/a.csv`), opaque to all but the source."""

ColumnOrValue: TypeAlias = pa.Array | str | int | bool | None
"""A column with a value per change, or the one value that all of them share."""


class Operation(IntEnum):
    READ = 0  # a row seen by a snapshot, not a change
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table under one schema, in the order in which they happened.

    A changed key is a DELETE of the old key and an INSERT of the new one. A TRUNCATE is alone in
    its `TableChanges`, as one row of nulls, or of what `truncated_where` says.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    """Per change the row after it; of a delete what is known of the row that went, the key at
    least. Its columns are those of `schema`, in that order and of those types."""
    operations: pa.UInt8Array
    source: Mapping[str, ColumnOrValue]
    """Debezium's `source` block in the order of its fields; `source_times` makes its times.
    Of changes read back from the log only `ts_us` is there."""
    commits: ColumnOrValue = ""
    """Which commit of the source each change belongs to: an LSN, a transaction, a file's name."""
    indexes: pa.Int64Array | None = None
    """Where in its commit each change stands, counted from 0; None where nobody counts."""
    before: pa.StructArray | None = None
    """Rows before an update, where the source sent them; null where it did not."""
    transaction: Mapping[str, ColumnOrValue] | None = None
    """Debezium's `transaction` block."""
    moves: pa.BooleanArray | None = None
    """True for a DELETE and the INSERT right behind it that are one change of key. They stay
    neighbours until they are in the log, whose headers name the other key of each."""
    headers: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    """Further headers of the records; null where a change has none of that name."""
    log_partition: TopicPartition | None = None
    log_offsets: pa.Int64Array | None = None
    """Where in the log each change stands; None before it got there."""
    markers: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of a TRUNCATE that was read back once for all partitions of its topic where it stands in each
    of them."""

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def is_truncate(self) -> bool:
        return len(self) == 1 and self.operations[0].as_py() == Operation.TRUNCATE

    @property
    def truncated_where(self) -> dict[str, Any]:
        """Of a TRUNCATE the columns and values that all rows have that go: its own share, where
        several tables became one by a route. Empty when every row goes."""
        [row] = self.rows.to_pylist()
        return {name: value for name, value in row.items() if value is not None}

    @property
    def in_every_partition(self) -> "Sequence[TableChanges]":
        """Of a TRUNCATE one for every partition that it stands in, for those who keep changes with
        their places: there a row is older than it or newer by the marker of its own partition."""
        return [
            replace(self, log_partition=partition, log_offsets=pa.array([offset]), markers={})
            for partition, offset in self.markers.items()
        ] or [self]

    @property
    def keys(self) -> pa.RecordBatch:
        return self.rows.select(list(self.schema.key))

    @property
    def committed_us(self) -> pa.Int64Array:
        """When each change was committed at its source, in microseconds of Unix time."""
        times = self.source["ts_us"]
        if isinstance(times, pa.Array):
            return times
        return pa.repeat(pa.scalar(times, pa.int64()), len(self))

    def filter(self, mask: pa.BooleanArray) -> "TableChanges":
        """Only the changes for which `mask` is true."""
        return self._map(lambda column: column.filter(mask))

    def take(self, indices: pa.Array) -> "TableChanges":
        """The changes at `indices`, in that order."""
        return self._map(lambda column: column.take(indices))

    def slice(self, start: int, count: int) -> "TableChanges":
        """`count` changes from `start` on, without copying."""
        return self._map(lambda column: column.slice(start, count))

    def _map(self, pick: Callable[[Any], Any]) -> "TableChanges":
        return replace(
            self,
            rows=pick(self.rows),
            operations=pick(self.operations),
            source=_map_cells(self.source, pick),
            commits=_map_cell(self.commits, pick),
            indexes=_map_cell(self.indexes, pick),
            before=_map_cell(self.before, pick),
            transaction=None if self.transaction is None else _map_cells(self.transaction, pick),
            moves=_map_cell(self.moves, pick),
            headers=_map_cells(self.headers, pick),
            log_offsets=_map_cell(self.log_offsets, pick),
        )


@dataclass(frozen=True, slots=True)
class Reject:
    """A piece of the source that is no row, to be kept aside with the reason."""

    table: TableId
    content: bytes
    problem: str
    at: str
    """Where it stands, as `headwater.at` says it of a record: `orders.csv#17`."""


@dataclass(frozen=True, slots=True)
class EventMessages:
    """Events that belong to no table, as JSON: transactions' ends, logical messages, heartbeats."""

    kind: str
    """Last part of their topic's name: `transaction`, `message` or `heartbeat`."""
    keys: pa.BinaryArray
    values: pa.BinaryArray


class Phase(Enum):
    """How far the replacement of a table has come."""

    PENDING = "pending"  # the log may differ from the table from here on
    HELD = "held"  # the same, until a person says that the table is to be read
    STARTED = "started"  # every row is emitted from here on; a second start begins anew
    COMPLETE = "complete"  # every row has been emitted, as a READ or as a change


@dataclass(frozen=True, slots=True)
class Replacement:
    """A table is read again as a whole, beside its changes. A key that was not emitted between
    `STARTED` and `COMPLETE` is gone at the source."""

    schema: TableSchema
    phase: Phase
    why: str = ""
    """What has become of the table, for users; when held, also what holds it and what begins it."""
    commit: str = ""
    """When complete: of which commit of the source the missing rows are deleted."""
    source: Mapping[str, ColumnOrValue] = field(default_factory=dict)
    """When complete: the `source` block of these deletes, one value each."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A stretch of the source that becomes readable as a whole."""

    tables: tuple[TableChanges, ...]
    positions: Positions
    """What changed of the source's position, as it is after the last change of this batch; empty
    while a transaction of the source goes on, which then stays one transaction of the log."""
    rejects: tuple[Reject, ...] = ()
    notices: tuple[EventMessages, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    """What starts before the rows of this batch, or is complete after them. A batch that has any
    has a position, too."""


def concat_changes(parts: Sequence[TableChanges]) -> TableChanges:
    """Changes of one table under one schema as they are read back from the log, one behind the
    other."""
    if len(parts) == 1:
        return parts[0]
    offsets = [each.log_offsets for each in parts if each.log_offsets is not None]
    return replace(
        parts[0],
        rows=pa.Table.from_batches([each.rows for each in parts]).combine_chunks().to_batches()[0],
        operations=pa.concat_arrays([each.operations for each in parts]),
        source={"ts_us": pa.concat_arrays([each.committed_us for each in parts])},
        before=_joined_images(parts),
        log_offsets=pa.concat_arrays(offsets) if offsets else None,
    )


def _joined_images(parts: Sequence[TableChanges]) -> pa.StructArray | None:
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
    """The three spellings of one commit time in Debezium's `source` block."""
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


def _map_cells(cells: Mapping[str, Any], pick: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: _map_cell(cell, pick) for name, cell in cells.items()}


def _map_cell(cell: Any, pick: Callable[[Any], Any]) -> Any:
    return pick(cell) if isinstance(cell, pa.Array) else cell
