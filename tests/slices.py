"""Slices of a log that is only written down: what a sink is handed, without a log behind it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.sink import AppliedOffset, ConsistentCut, Slice

COMMITTED_US = 1_700_000_000_000_000
OP_CODES = {
    "r": Operation.READ,
    "c": Operation.INSERT,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "t": Operation.TRUNCATE,
    "R": Operation.REREAD,
}

Change = tuple[str, dict[str, Any]]
"""Debezium's letter and the row; of a delete the key is enough. `R`: a row that was read again."""


def schema_of(
    table: str = "public.orders", *, key: Sequence[str] = ("id",), **columns: pa.DataType
) -> TableSchema:
    """`schema_of("public.orders", id=pa.int64(), note=pa.string())`"""
    namespace, _, name = table.rpartition(".")
    return TableSchema(
        TableId(namespace, name),
        tuple(Column(name, kind, is_nullable=name not in key) for name, kind in columns.items()),
        tuple(key),
    )


def changes_of(
    schema: TableSchema, *changes: Change, committed_us: int | Sequence[int] = COMMITTED_US
) -> TableChanges:
    """Changes in order, with no place in the log yet."""
    rows = [{name: row.get(name) for name in schema.names} for _, row in changes]
    times = [committed_us] * len(changes) if isinstance(committed_us, int) else [*committed_us]
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_pylist(rows, schema=schema.arrow),
        operations=pa.array([OP_CODES[letter] for letter, _ in changes], pa.uint8()),
        source=source_times(pa.array(times, pa.int64())),
    )


@dataclass
class ScriptedTopic:
    """The changes of a topic's partitions in the order of their appending; `slice` hands out what
    is beyond the last one, in that order."""

    name: str = "shop.public.orders"
    topic_id: str = "topic-1"
    entries: list[TableChanges] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    sliced: dict[int, int] = field(default_factory=dict)

    def append(
        self,
        schema: TableSchema,
        *changes: Change,
        partition: int = 0,
        committed_us: int | Sequence[int] = COMMITTED_US,
    ) -> None:
        """A truncate is written `("t", {})`, stands alone, and is handed out once, however many
        partitions there are."""
        self.append_changes(
            changes_of(schema, *changes, committed_us=committed_us), partition=partition
        )

    def append_changes(self, changes: TableChanges, *, partition: int = 0) -> None:
        start = self.ends.get(partition, 0)
        self.ends[partition] = start + len(changes) + 1  # a marker of the transaction follows
        placed = replace(
            changes,
            log_partition=TopicPartition(self.name, partition),
            log_offsets=pa.array(range(start, start + len(changes)), pa.int64()),
        )
        self.entries.append(placed)

    def slice(self, *, start: dict[int, int] | None = None, without: Sequence[int] = ()) -> Slice:
        """What came since the last slice, or since `start`; offsets in `without` are skipped, as
        those of records that were set aside."""
        begins = {part: self.sliced.get(part, 0) for part in self.ends} if start is None else start
        self.sliced = dict(self.ends)
        return self._part(begins, dict(self.ends), without)

    def _part(self, begins: dict[int, int], ends: dict[int, int], without: Sequence[int]) -> Slice:
        async def read(part: Slice) -> AsyncIterator[TableChanges]:
            for changes in self.entries:
                assert changes.log_partition is not None
                assert changes.log_offsets is not None
                partition = changes.log_partition.partition
                wanted = [
                    begins.get(partition, 0) <= offset < ends.get(partition, 0)
                    and offset not in without
                    for offset in changes.log_offsets.to_pylist()
                ]
                if any(wanted):
                    yield changes.filter(pa.array(wanted))

        return Slice(
            log=cast(Log, None),
            start={
                self._at(part): AppliedOffset(self.topic_id, begins.get(part, 0)) for part in ends
            },
            end={self._at(part): AppliedOffset(self.topic_id, end) for part, end in ends.items()},
            cut=ConsistentCut(max(ends.values()), COMMITTED_US // 1_000, {"stream": str(ends)}),
            read=read,
        )

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.name, partition)


def together(*parts: Slice) -> Slice:
    """Slices of several topics as one."""

    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        for part in parts:
            async for changes in part.changes():
                yield changes

    return Slice(
        log=parts[0].log,
        start={key: applied for part in parts for key, applied in part.start.items()},
        end={key: applied for part in parts for key, applied in part.end.items()},
        cut=parts[0].cut,
        read=read,
    )


def failing(part: Slice, error: Exception, *, after: int = 1) -> Slice:
    """The same, but reading it breaks off with `error` after so many pieces."""

    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        pieces = 0
        async for changes in part.changes():
            yield changes
            pieces += 1
            if pieces == after:
                raise error

    return replace(part, read=read)
