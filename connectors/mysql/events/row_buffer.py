"""Gathers rows of one table, in the order of the log, and makes columns of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.binlog.rows import RowChange, RowsEvent
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.core_log.model.changes import (
    ColumnOrValue,
    Operation,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId


class EventPlace(NamedTuple):
    """Where a row event comes from."""

    gtid: str
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


class _Run(NamedTuple):
    """Rows of one event."""

    place: EventPlace
    size: int
    first: int
    """Index of the first one in its commit."""


@dataclass(slots=True)
class RowBuffer:
    """Rows of a table under one form."""

    table: MysqlTable
    origin: MysqlOrigin
    columns: list[list[Any]] = field(init=False)
    befores: list[list[Any]] = field(init=False)
    operations: list[int] = field(default_factory=list)
    has_before: list[bool] = field(default_factory=list)
    moves: list[bool] = field(default_factory=list)
    runs: list[_Run] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Index of each change's row in its event."""

    def __post_init__(self) -> None:
        self.columns = [[] for _ in self.table.places]
        self.befores = [[] for _ in self.table.places]

    def __len__(self) -> int:
        return len(self.operations)

    def add(self, event: RowsEvent, place: EventPlace, *, first: int) -> int:
        """Adds the rows of an event whose images are whole; returns the number of changes."""
        before = len(self)
        match event.change:
            case RowChange.INSERT:
                assert event.after is not None, "an insert has rows after it"
                self._extend(event.after.columns, event.count, Operation.INSERT)
            case RowChange.DELETE:
                assert event.before is not None, "a delete has rows before it"
                self._extend(event.before.columns, event.count, Operation.DELETE)
            case RowChange.UPDATE:
                self._update(event)
        count = len(self) - before
        self.runs.append(_Run(place, count, first))
        return count

    def _extend(self, image: Mapping[int, list[Any]], count: int, operation: Operation) -> None:
        for at, place in enumerate(self.table.places):
            self.columns[at] += image[place]
            self.befores[at] += [None] * count
        self.operations += [operation] * count
        self.has_before += [False] * count
        self.moves += [False] * count
        self.rows += range(count)

    def _update(self, event: RowsEvent) -> None:
        assert event.before is not None and event.after is not None, "an update has both sides"
        before, after = event.before.columns, event.after.columns
        places = self.table.places
        names = self.table.schema.names
        key = [places[names.index(name)] for name in self.table.schema.key]
        moved = [
            row
            for row in range(event.count)
            if any(before[place][row] != after[place][row] for place in key)
        ]
        start = 0
        for row in [*moved, event.count]:
            self._update_rows(before, after, start, row)
            if row < event.count:
                self._move(before, after, row)
            start = row + 1

    def _update_rows(
        self,
        before: Mapping[int, list[Any]],
        after: Mapping[int, list[Any]],
        start: int,
        end: int,
    ) -> None:
        count = end - start
        for at, place in enumerate(self.table.places):
            self.columns[at] += after[place][start:end]
            self.befores[at] += before[place][start:end]
        self.operations += [Operation.UPDATE] * count
        self.has_before += [True] * count
        self.moves += [False] * count
        self.rows += range(start, end)

    def _move(
        self, before: Mapping[int, list[Any]], after: Mapping[int, list[Any]], row: int
    ) -> None:
        """A change of key is a delete and an insert."""
        for at, place in enumerate(self.table.places):
            self.columns[at] += (before[place][row], after[place][row])
            self.befores[at] += (None, None)
        self.operations += (Operation.DELETE, Operation.INSERT)
        self.has_before += (False, False)
        self.moves += (True, True)
        self.rows += (row, row)

    def changes(self) -> TableChanges:
        schema, plans = self.table.schema, self.table.plans
        rows = pa.RecordBatch.from_arrays(
            [plan.log_column(values) for plan, values in zip(plans, self.columns, strict=True)],
            schema=schema.arrow,
        )
        before = None
        if any(self.has_before):
            parts = [
                plan.log_column(values) for plan, values in zip(plans, self.befores, strict=True)
            ]
            mask = pa.array([not each for each in self.has_before])
            before = pa.StructArray.from_arrays(parts, fields=list(schema.arrow), mask=mask)
        return TableChanges(
            schema,
            rows,
            pa.array(self.operations, pa.uint8()),
            self._source(),
            commits=self._cells([run.place.gtid for run in self.runs], pa.string()),
            indexes=pa.array(
                np.concatenate(
                    [np.arange(run.first, run.first + run.size) for run in self.runs]
                ).astype(np.int64)
            ),
            before=before,
            moves=pa.array(self.moves) if any(self.moves) else None,
        )

    def _source(self) -> dict[str, ColumnOrValue]:
        places = [run.place for run in self.runs]
        times = self._cells([each.committed_us for each in places], pa.int64())
        assert not isinstance(times, str), "a time is a number"
        gtids = self._cells([each.gtid for each in places], pa.string())
        return self.origin.block(
            self.table.table,
            source_times(times),
            snapshot="false",
            server_id=self._cells([each.server_id for each in places], pa.int64()),
            gtid=gtids,
            file=self._cells([each.file for each in places], pa.string()),
            position=self._cells([each.position for each in places], pa.int64()),
            row=pa.array(self.rows, pa.int32()),
            thread=self._cells([each.thread for each in places], pa.int64()),
        )

    def _cells(self, values: Sequence[Any], kind: pa.DataType) -> ColumnOrValue:
        """Returns one value if all events have the same, else a value per change."""
        if all(value == values[0] for value in values):
            only: ColumnOrValue = values[0]
            return only
        counts = np.array([run.size for run in self.runs])
        indexes = pa.array(np.repeat(np.arange(len(values)), counts))
        return pa.array(values, kind).take(indexes)


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
        commits=place.gtid,
        indexes=pa.array([0], pa.int64()),
    )
