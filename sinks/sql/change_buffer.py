"""Changes of one table, buffered from small batches until a write is worthwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableSchema

NumberArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BufferedChanges:
    """Changes of one schema with their places in the log, never a truncate."""

    schema: TableSchema
    rows: pa.RecordBatch
    operations: NumberArray
    committed_us: pa.Int64Array
    offsets: pa.Int64Array
    origins: NumberArray
    """For each change the index of its partition in `partitions`."""
    partitions: tuple[TopicPartition, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def deleted(self) -> NumberArray:
        found: NumberArray = self.operations == Operation.DELETE
        return found

    @property
    def keys(self) -> pa.RecordBatch:
        return self.rows.select(list(self.schema.key))

    def take(self, indices: pa.Int64Array) -> "BufferedChanges":
        numbers = indices.to_numpy()
        return BufferedChanges(
            self.schema,
            self.rows.take(indices),
            self.operations[numbers],
            self.committed_us.take(indices),
            self.offsets.take(indices),
            self.origins[numbers],
            self.partitions,
        )

    def where(self, mask: NumberArray) -> "BufferedChanges":
        return self if mask.all() else self.take(pa.array(np.flatnonzero(mask)))

    def slice(self, start: int, length: int) -> "BufferedChanges":
        return self.take(pa.array(np.arange(start, min(start + length, len(self)))))


def chunk_of(parts: Sequence[TableChanges]) -> BufferedChanges:
    """Returns one chunk; all batches are of one table and one schema."""
    partitions = tuple(dict.fromkeys(_partition_of(part) for part in parts))
    codes = {partition: code for code, partition in enumerate(partitions)}
    lengths = [len(part) for part in parts]
    return BufferedChanges(
        parts[0].schema,
        _concat_rows([part.rows for part in parts]),
        _concat([part.operations for part in parts]).to_numpy(),
        _concat([part.committed_us.cast(pa.int64()) for part in parts]),
        _concat([_offsets_of(part) for part in parts]),
        np.repeat([codes[_partition_of(part)] for part in parts], lengths),
        partitions,
    )


class ChangeBuffer:
    """Changes that are read but not yet written, per table."""

    def __init__(self, *, rows_max: int, bytes_max: int) -> None:
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._parts: dict[str, list[TableChanges]] = {}
        self._rows: dict[str, int] = {}
        self._bytes = 0

    def add(self, changes: TableChanges) -> list[BufferedChanges]:
        """Adds changes; yields those that must be written now."""
        ready: list[BufferedChanges] = []
        table = str(changes.schema.table)
        buffered = self._parts.get(table)
        if (
            buffered
            and buffered[-1].schema is not changes.schema
            and buffered[-1].schema != changes.schema
        ):
            ready += self._release(table)
        self._parts.setdefault(table, []).append(changes)
        self._rows[table] = self._rows.get(table, 0) + len(changes)
        self._bytes += _bytes_of(changes)
        if self._bytes >= self._bytes_max:
            return ready + self.release_all()
        if self._rows[table] >= self._rows_max:
            ready += self._release(table)
        return ready

    def release(self, table: str) -> list[BufferedChanges]:
        return self._release(table) if self._parts.get(table) else []

    def release_all(self) -> list[BufferedChanges]:
        return [chunk for table in list(self._parts) for chunk in self._release(table)]

    def _release(self, table: str) -> list[BufferedChanges]:
        parts = self._parts.pop(table)
        self._bytes -= sum(_bytes_of(part) for part in parts)
        del self._rows[table]
        whole = chunk_of(parts)
        if len(whole) <= self._rows_max * 2:
            return [whole]
        starts = range(0, len(whole), self._rows_max)
        return [whole.slice(start, self._rows_max) for start in starts]


def _bytes_of(changes: TableChanges) -> int:
    return int(changes.rows.nbytes) + 32 * len(changes)


def _partition_of(changes: TableChanges) -> TopicPartition:
    assert changes.log_partition is not None, "changes of a slice have offsets"
    return changes.log_partition


def _offsets_of(changes: TableChanges) -> pa.Int64Array:
    assert changes.log_offsets is not None, "changes of a slice have offsets"
    return changes.log_offsets


def _concat(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _concat_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def with_columns(rows: pa.RecordBatch, added: dict[str, pa.Array]) -> pa.RecordBatch:
    """Returns the rows with more columns at their end."""
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *added.values()], names=[*rows.schema.names, *added]
    )


def times_of(microseconds: pa.Int64Array) -> pa.Array:
    """Returns timestamps in UTC without a zone, which every database keeps unchanged."""
    return pc.cast(microseconds, pa.timestamp("us"))


def moment_literal(microseconds: int) -> str:
    """Returns such a timestamp as a literal."""
    return f"'{times_of(pa.array([microseconds])).cast(pa.string())[0].as_py()}'"
