"""Gathers row events, in the order of the log, and makes columns of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.mysql.binlog.rows import RowChange, RowsEvent, read_rows
from headwater.connectors.mysql.kernels.kernels import MysqlKernels, chosen_kernels
from headwater.connectors.mysql.server.catalog import MysqlTable, rows_of
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.model.changes import (
    ColumnOrValue,
    Operation,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId


class EventPlace(NamedTuple):
    """Where a row event comes from."""

    commit: str
    """The GTID; or the place of its begin in the server's files."""
    gtid: str | None
    committed_us: int
    file: str
    position: int
    thread: int | None
    server_id: int


@dataclass(frozen=True, slots=True)
class MysqlOrigin:
    """The fields that all events of a source share."""

    pipeline: str
    connector: str
    """`mysql` or `mariadb`."""
    version: str = version("headwater")

    def block(
        self,
        table: TableId,
        times: Mapping[str, ColumnOrValue],
        *,
        snapshot: str,
        server_id: ColumnOrValue = 0,
        gtid: ColumnOrValue = None,
        file: ColumnOrValue,
        position: ColumnOrValue,
        row: ColumnOrValue = 0,
        thread: ColumnOrValue = None,
    ) -> dict[str, ColumnOrValue]:
        """Returns the block in the order of Debezium's fields."""
        return {
            "version": self.version,
            "connector": self.connector,
            "name": self.pipeline,
            "ts_ms": times["ts_ms"],
            "snapshot": snapshot,
            "db": table.namespace,
            "sequence": None,
            "ts_us": times["ts_us"],
            "ts_ns": times["ts_ns"],
            "table": table.name,
            "server_id": server_id,
            "gtid": gtid,
            "file": file,
            "pos": position,
            "row": row,
            "thread": thread,
            "query": None,
        }


class _Entry(NamedTuple):
    table: MysqlTable
    event: RowsEvent
    place: EventPlace
    group: int


@dataclass(slots=True)
class _Part:
    """Changes of one table, in the order of the log."""

    rows: pa.RecordBatch
    operations: UInt8Array
    entries: Int64Array
    """The entry of each change, and its row in there."""
    places: Int64Array
    before: pa.StructArray | None = None
    moves: BoolArray | None = None


@dataclass(slots=True)
class RowBuffer:
    """Row events in the order of the log; `take` makes columns of them, table by table."""

    origin: MysqlOrigin
    kernels: MysqlKernels = field(default_factory=chosen_kernels)
    byte_count: int = 0
    _entries: list[_Entry] = field(default_factory=list)
    _last_group: int = -1
    _last_count: int = 0
    """Changes of the last group that were taken before."""

    def add(self, table: MysqlTable, event: RowsEvent, place: EventPlace, group: int) -> None:
        """Adds an event whose images are whole; `group` numbers its commit."""
        self._entries.append(_Entry(table, event, place, group))
        self.byte_count += len(event.rows)

    def add_groups(
        self,
        table: MysqlTable,
        events: Sequence[RowsEvent],
        places: Sequence[EventPlace],
        first_group: int,
    ) -> None:
        """Adds the only event of each of several commits."""
        groups = range(first_group, first_group + len(events))
        self._entries += map(_Entry, repeat(table), events, places, groups)
        self.byte_count += sum(len(event.rows) for event in events)

    def take(self) -> list[TableChanges]:
        """Returns the changes, each once."""
        entries, self._entries, self.byte_count = self._entries, [], 0
        by_table: dict[int, list[int]] = {}
        for number, entry in enumerate(entries):
            by_table.setdefault(id(entry.table), []).append(number)
        parts = [(numbers, self._part(entries, numbers)) for numbers in by_table.values()]
        counts = np.zeros(len(entries), np.int64)
        for _, part in parts:
            counts += np.bincount(part.entries, minlength=len(entries))
        firsts = self._first_indexes(entries, counts)
        return [
            self._changes(entries, numbers, part, counts, firsts)
            for numbers, part in parts
            if len(part.entries)
        ]

    def _first_indexes(self, entries: Sequence[_Entry], counts: Int64Array) -> Int64Array:
        """Returns the index of each entry's first change in its commit."""
        if not entries:
            return counts
        groups = np.array([entry.group for entry in entries])
        before = np.cumsum(counts) - counts
        begins = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
        bases = before[begins]
        if groups[0] == self._last_group:
            bases[0] -= self._last_count
        firsts = before - np.repeat(bases, np.diff(begins, append=len(groups)))
        self._last_group, self._last_count = int(groups[-1]), int(firsts[-1] + counts[-1])
        return np.asarray(firsts, np.int64)

    def _part(self, entries: Sequence[_Entry], numbers: Sequence[int]) -> _Part:
        by_layout: dict[int, list[int]] = {}
        for number in numbers:
            by_layout.setdefault(id(entries[number].event.layout), []).append(number)
        return _merged([self._piece(entries, each) for each in by_layout.values()])

    def _piece(self, entries: Sequence[_Entry], numbers: Sequence[int]) -> _Part:
        """Returns the changes of events of one layout."""
        table, layout = entries[numbers[0]].table, entries[numbers[0]].event.layout
        chunks = [entries[number].event.rows for number in numbers]
        found = read_rows(layout, chunks, self.kernels, frozenset(table.places))
        starts = np.cumsum(found.counts) - found.counts
        total = int(found.counts.sum())
        places = np.arange(total) - np.repeat(starts, found.counts)
        owners = np.repeat(np.array(numbers, np.int64), found.counts)
        match layout.change:
            case RowChange.INSERT:
                rows, operation = _batch(table, found.after), Operation.INSERT
            case RowChange.DELETE:
                rows, operation = _batch(table, found.before), Operation.DELETE
            case RowChange.UPDATE:
                rows, before = _batch(table, found.after), _batch(table, found.before)
                updates = _Part(rows, np.full(total, Operation.UPDATE, np.uint8), owners, places)
                return _with_moves(updates, before, table.schema.key)
        return _Part(rows, np.full(total, operation, np.uint8), owners, places)

    def _changes(
        self,
        entries: Sequence[_Entry],
        numbers: Sequence[int],
        part: _Part,
        counts: Int64Array,
        firsts: Int64Array,
    ) -> TableChanges:
        table = entries[numbers[0]].table
        own = counts[numbers]
        starts = np.cumsum(own) - own
        indexes = np.arange(len(part.entries)) + np.repeat(firsts[numbers] - starts, own)
        places = [entries[number].place for number in numbers]
        commits = _cells([each.commit for each in places], own, pa.string())
        has_gtids = all(each.gtid is not None for each in places)
        gtids = commits if has_gtids else _cells([each.gtid for each in places], own, pa.string())
        times = _cells([each.committed_us for each in places], own, pa.int64())
        assert not isinstance(times, str), "a time is a number"
        source = self.origin.block(
            table.table,
            source_times(times),
            snapshot="false",
            server_id=_cells([each.server_id for each in places], own, pa.int64()),
            gtid=gtids,
            file=_cells([each.file for each in places], own, pa.string()),
            position=_cells([each.position for each in places], own, pa.int64()),
            row=pa.array(part.places.astype(np.int32)),
            thread=_cells([each.thread for each in places], own, pa.int64()),
        )
        return TableChanges(
            table.schema,
            part.rows,
            pa.array(part.operations),
            source,
            commits=commits,
            indexes=pa.array(indexes.astype(np.int64)),
            before=part.before,
            moves=None if part.moves is None else pa.array(part.moves),
        )


def _batch(table: MysqlTable, columns: Mapping[int, pa.Array]) -> pa.RecordBatch:
    arrays = [
        plan.log_column(columns[place])
        for plan, place in zip(table.plans, table.places, strict=True)
    ]
    return rows_of(table, arrays)


def _with_moves(updates: _Part, before: pa.RecordBatch, key: Sequence[str]) -> _Part:
    """Returns the updates with their rows before; a change of key is a delete and an insert."""
    after, count = updates.rows, len(updates.entries)
    is_moved = np.zeros(count, np.bool_)
    for name in key:
        differs = pc.not_equal(before.column(name), after.column(name))
        is_moved |= differs.fill_null(False).to_numpy(zero_copy_only=False)
    befores = _struct(before)
    if not is_moved.any():
        updates.before = befores
        return updates
    rows = np.repeat(np.arange(count), 1 + is_moved)
    moves = is_moved[rows]
    is_second = np.append(False, rows[1:] == rows[:-1])
    is_delete = moves & ~is_second
    both = _joined([after, before])
    return _Part(
        both.take(pa.array(np.where(is_delete, rows + count, rows))),
        np.select(
            [is_delete, moves], [Operation.DELETE, Operation.INSERT], Operation.UPDATE
        ).astype(np.uint8),
        updates.entries[rows],
        updates.places[rows],
        befores.take(pa.array(rows, mask=moves)),
        moves,
    )


def _merged(parts: Sequence[_Part]) -> _Part:
    """Returns parts of several layouts as one; each entry's rows are in one of them."""
    if len(parts) == 1:
        return parts[0]
    entries = np.concatenate([each.entries for each in parts])
    order = np.argsort(entries, kind="stable")
    before = moves = None
    if any(each.before is not None for each in parts):
        befores = [
            pa.nulls(len(each.entries), pa.struct(list(each.rows.schema)))
            if each.before is None
            else each.before
            for each in parts
        ]
        before = pa.concat_arrays(befores).take(pa.array(order))
    if any(each.moves is not None for each in parts):
        nothing = [np.zeros(len(each.entries), np.bool_) for each in parts]
        moved = [
            none if each.moves is None else each.moves
            for each, none in zip(parts, nothing, strict=True)
        ]
        moves = np.concatenate(moved)[order]
    return _Part(
        _joined([each.rows for each in parts]).take(pa.array(order)),
        np.concatenate([each.operations for each in parts])[order],
        entries[order],
        np.concatenate([each.places for each in parts])[order],
        before,
        moves,
    )


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    arrays = [pa.concat_arrays(list(each)) for each in zip(*batches, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=batches[0].schema)


def _struct(rows: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))


def _cells(values: Sequence[Any], counts: Int64Array, kind: pa.DataType) -> ColumnOrValue:
    """Returns one value if all events have the same, else a value per change."""
    if values.count(values[0]) == len(values):
        only: ColumnOrValue = values[0]
        return only
    each = pa.array(values, kind)
    if (counts == 1).all():
        return each
    return each.take(pa.array(np.repeat(np.arange(len(values)), counts)))


def truncation_of(table: MysqlTable, origin: MysqlOrigin, place: EventPlace) -> TableChanges:
    """Returns the truncate of a table, as one row of nulls."""
    schema = table.schema.arrow
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
    source = origin.block(
        table.table,
        source_times(place.committed_us),
        snapshot="false",
        server_id=place.server_id,
        gtid=place.gtid,
        file=place.file,
        position=place.position,
    )
    return TableChanges(
        table.schema,
        nothing,
        pa.array([Operation.TRUNCATE], pa.uint8()),
        source,
        commits=place.commit,
        indexes=pa.array([0], pa.int64()),
    )
