"""Replays topics to the newest state of every key, stored as two numbers per key."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.foundation.errors import RecordsRejected, SinkRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.core_log.rows.rejects import UNFIT
from headwater.pipelines.loops.deliver.slice_reader import AfterLog, SliceReader
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.deleted_rows import (
    NOTHING,
    THERE,
    PartitionChanges,
    concat_parts,
    fold,
    partition_changes,
    truncate,
)
from headwater.sinks.sink import AppliedOffset, Slice
from headwater.sinks.type_conversion import cast, find_unfit

MERGE_ROWS = 2_000_000
"""Changes of one partition that are held before all but the newest of each key are dropped."""


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The columns by which rows are compared."""

    schema: TableSchema
    """The target's schema."""
    columns: tuple[str, ...]
    """The compared columns of the schema, the key's included."""

    def project(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows of another schema of the table under this one. Raises SinkRejected for
        values that do not fit."""
        given = set(rows.schema.names)
        fields = [self.schema.arrow.field(name) for name in self.columns]
        columns = [
            self._as_now(rows.column(field.name), field)
            if field.name in given
            else pa.nulls(rows.num_rows, field.type)
            for field in fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _as_now(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.null_count == len(column):  # Arrow refuses some casts whatever the values are
            return pa.nulls(len(column), field.type)
        try:
            return cast(column, field.type)
        except UNFIT:  # no `from`: Arrow's messages quote the values
            raise SinkRejected(
                "rows with another type of a column cannot be compared",
                table=str(self.schema.table),
                column=field.name,
                held=str(column.type),
                now=str(field.type),
            ) from None

    def digests(self, rows: pa.RecordBatch) -> tuple[Digests, Digests]:
        """Returns digests of the keys, and of whole rows."""
        keys = [rows.column(name) for name in self.schema.key]
        return digests_of(keys, rows.num_rows), digests_of(rows.columns, rows.num_rows)

    def digest_log_rows(self, rows: pa.RecordBatch) -> tuple[Digests, Digests]:
        """Returns the same for rows of the log of any earlier types; a value that does not fit
        today's type makes its row differ from all others."""
        try:
            return self.digests(self.project(rows))
        except SinkRejected:
            is_unfit = self._find_unfit(rows)
        keys, _ = self.digests(ComparedColumns(self.schema, self.schema.key).project(rows))
        whole = digests_of(rows.columns, rows.num_rows)
        if not is_unfit.all():
            _, whole[~is_unfit] = self.digests(self.project(rows.filter(pa.array(~is_unfit))))
        return keys, whole

    def _find_unfit(self, rows: pa.RecordBatch) -> BoolArray:
        given = set(rows.schema.names)
        found = np.zeros(rows.num_rows, np.bool_)
        for name in self.columns:
            if name in given:
                found |= find_unfit(rows.column(name), self.schema.arrow.field(name).type)
        return found


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a table at a moment, in the order of key digests."""

    keys: Digests
    rows: Digests
    origins: npt.NDArray[np.int32]
    """The index in `partitions` of the row's last record."""
    offsets: Int64Array
    partitions: tuple[TopicPartition, ...]
    is_row: BoolArray
    """False if the log has only the delete of a key."""
    ends_us: Int64Array
    """The row's delete time, or `THERE`."""
    is_bound: BoolArray
    """Whether it may have been deleted earlier."""
    is_whole: bool = False
    """Whether the log has had every row."""
    is_former: BoolArray | None = None
    """Whether a deleted row's last record is older than the re-read of its table: its columns may
    have had other types, so only its key counts."""

    def __len__(self) -> int:
        """Returns the number of rows in the log, deleted ones included."""
        return int(np.count_nonzero(self.is_row))

    def current(self) -> "LogState":
        """Returns the state without deleted rows."""
        is_there = self.ends_us == THERE
        return self if is_there.all() else self._take(is_there)

    def limit_to_known(self, cleaned_to: Ends) -> "LogState":
        """Limits the state to what is known if the log may lack changes below these offsets."""
        marks = np.array([cleaned_to[part] for part in self.partitions], np.int64)
        is_bound = self.is_bound & (~self.is_row | (self.offsets < marks[self.origins]))
        return replace(self, is_bound=is_bound, is_whole=not marks.any())

    def with_former(self, beginnings: Ends) -> "LogState":
        """Adds former rows. `beginnings`: from there on the records are the whole table."""
        if not beginnings:
            return self
        starts = np.array([beginnings.get(part, 0) for part in self.partitions], np.int64)
        is_former = (self.ends_us != THERE) & (self.offsets < starts[self.origins])
        return replace(self, is_former=is_former)

    def _take(self, mask: BoolArray) -> "LogState":
        return LogState(
            self.keys[mask],
            self.rows[mask],
            self.origins[mask],
            self.offsets[mask],
            self.partitions,
            self.is_row[mask],
            self.ends_us[mask],
            self.is_bound[mask],
        )

    def place(self, row: int) -> tuple[TopicPartition, int]:
        """Returns the place of its last record."""
        return self.partitions[int(self.origins[row])], int(self.offsets[row])

    def find(self, keys: Digests) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
        """Returns the index of each key, and whether it exists."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return places, self.keys[places] == keys


T = TypeVar("T")


@dataclass(slots=True)
class LogPass:
    """Reads topics of a table from their start, without records that no reader can decode."""

    log: Log
    after_log: AfterLog
    fetch_bytes: int
    skipped: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Such records, which therefore no target has."""

    async def read(
        self,
        ends: Ends,
        start: Callable[[], T],
        take: Callable[[T, TableChanges], None],
        *,
        has_barriers: bool = False,
    ) -> T:
        """Returns what `take` made of all changes. With `has_barriers` a truncate waits for the
        changes of all partitions before it."""
        while True:
            found = start()
            try:
                await self._read(ends, partial(take, found), has_barriers=has_barriers)
            except RecordsRejected as error:
                place = TopicPartition(error.topic, error.partition)
                self.skipped.setdefault(place, set()).update(error.reasons)
            else:
                return found

    async def _read(
        self, ends: Ends, take: Callable[[TableChanges], None], *, has_barriers: bool
    ) -> None:
        reader = SliceReader(
            self.log,
            after_log=self.after_log,
            fetch_bytes=self.fetch_bytes,
            skipped=lambda: self.skipped,
        )
        part = Slice(
            log=self.log,
            start={part: AppliedOffset("", 0) for part in ends},
            end={part: AppliedOffset("", end) for part, end in ends.items()},
            cut=None,
            read=reader.read,
            truncated=frozenset(part.topic for part in ends if has_barriers),
        )
        async with aclosing(reader.read(part)) as read:
            async for changes in read:
                await run_in_thread(partial(take, changes), changes.rows.nbytes)


class LogFold:
    """Reads every topic once for all requested moments."""

    def __init__(
        self,
        log: Log,
        shape: ComparedColumns,
        *,
        after_log: AfterLog,
        fetch_bytes: int,
        keeps_deleted: bool = False,
    ) -> None:
        """With `keeps_deleted` the states include deleted rows."""
        self._shape, self._keeps_deleted = shape, keeps_deleted
        self._pass = LogPass(log, after_log, fetch_bytes)
        self.skipped = self._pass.skipped

    async def states(self, cut_points: Sequence[Ends]) -> list[LogState]:
        stops = {
            part: sorted({ends.get(part, 0) for ends in cut_points})
            for part in sorted({part for ends in cut_points for part in ends})
        }
        tallies = await self._pass.read(
            {part: each[-1] for part, each in stops.items()},
            lambda: {part: _Tally(each, self._keeps_deleted) for part, each in stops.items()},
            self._take,
        )
        return [_state(tallies, ends) for ends in cut_points]

    def _take(self, tallies: Mapping[TopicPartition, "_Tally"], changes: TableChanges) -> None:
        assert changes.log_partition is not None, "changes of the log have offsets"
        tallies[changes.log_partition].take(changes, self._shape)


@dataclass(slots=True)
class _Tally:
    """One partition during the read."""

    stops: Sequence[int]
    """Ascending offsets at which its state is requested."""
    keeps_deleted: bool
    states: dict[int, PartitionChanges] = field(default_factory=dict)
    parts: list[PartitionChanges] = field(default_factory=list)
    waiting: int = 0

    def take(self, changes: TableChanges, shape: ComparedColumns) -> None:
        assert changes.log_offsets is not None, "changes of the log have offsets"
        offsets = changes.log_offsets.to_numpy()
        if changes.is_truncate:
            self._pass(int(offsets[0]))
            self._empty(changes.committed_us[0].as_py())
            return
        part = partition_changes(changes, *shape.digest_log_rows(changes.rows))
        for stop in self.stops:
            if stop not in self.states and stop <= offsets[-1]:
                self.states[stop] = self._fold([*self.parts, part.upto(stop)])
        self.parts.append(part)
        self.waiting += len(offsets)
        if self.waiting > MERGE_ROWS:
            self.parts, self.waiting = [self._fold(self.parts)], 0

    def at(self, stop: int) -> PartitionChanges:
        self._pass(stop)
        return self.states[stop]

    def _fold(self, parts: Sequence[PartitionChanges]) -> PartitionChanges:
        return fold(parts, keeps_deleted=self.keeps_deleted)

    def _empty(self, committed_us: int) -> None:
        self.waiting = 0
        left = [self._fold(self.parts)] if self.keeps_deleted else []
        self.parts = [truncate(part, committed_us=committed_us) for part in left]

    def _pass(self, offset: int) -> None:
        """Processes a stop: all later records are at or behind this offset."""
        for stop in self.stops:
            if stop not in self.states and stop <= offset:
                self.states[stop] = self._fold(self.parts)


def _state(tallies: Mapping[TopicPartition, _Tally], ends: Ends) -> LogState:
    parts = [tally.at(ends.get(part, 0)) for part, tally in tallies.items()]
    whole = concat_parts(parts) if parts else NOTHING
    origins = np.repeat(np.arange(len(parts), dtype=np.int32), [len(p.keys) for p in parts])
    order = np.argsort(whole.keys, kind="stable")
    found = whole.take(order)
    return LogState(
        found.keys,
        found.rows,
        origins[order],
        found.offsets,
        tuple(tallies),
        found.is_row,
        found.ends_us,
        found.is_bound,
    )
