"""Rows on disk until all of a table was read, so that a half-read table never replaces the old
one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryFile, gettempdir
from types import TracebackType
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.disk_space import disk_full, lacks_room
from headwater.core_log.foundation.errors import SourceUnavailable


class Spool:
    """Batches of one schema in an unnamed file that is deleted when it is closed."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: pa.RecordBatch) -> None:
        try:
            if self._writer is None:
                self._file = TemporaryFile()  # noqa: SIM115, closed at the end
                self._writer = pa.ipc.new_stream(self._file, rows.schema)
            self._writer.write_batch(rows)
        except OSError as error:
            if lacks_room(error):
                hint = "free space there, or set another directory in the variable TMPDIR"
                raise disk_full(error, gettempdir(), hint=hint) from None
            raise SourceUnavailable(
                "rows cannot be stored on disk until their table is read",
                directory=gettempdir(),
                why=error.strerror or str(error),
                hint="set another directory in the variable TMPDIR",
            ) from None

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)


RowDigests = npt.NDArray[np.uint64]

_CHANCE = np.random.default_rng(20_170_701)
_WEIGHTS: RowDigests = _CHANCE.integers(1, 1 << 63, 1 << 16, dtype=np.uint64) * np.uint64(
    2
) + np.uint64(1)
_TURN = np.uint64(0x9E3779B97F4A7C15)


def digests_of(rows: pa.RecordBatch) -> RowDigests:
    """Returns 64 bits per row: the sum of its bytes, each multiplied by a random number for its
    position."""
    if not rows.num_rows:
        return np.zeros(0, dtype=np.uint64)
    texts = [_bytes_of(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(
        *texts, b"\x1f", null_handling="replace", null_replacement=b"\x00null"
    )
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    ends = ends.astype(np.int64)
    values = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    indices = np.arange(len(values)) - np.repeat(starts, lengths)
    weights = _WEIGHTS[indices % len(_WEIGHTS)]
    weights = weights + (indices // len(_WEIGHTS)).astype(np.uint64) * _TURN
    sums = np.zeros(len(lines) + 1, dtype=np.uint64)
    products = np.append(np.uint64(0), np.cumsum((values.astype(np.uint64) + 1) * weights))
    sums = products[ends[1:] - ends[0]] - products[starts]
    found: RowDigests = sums ^ (lengths.astype(np.uint64) * _TURN)
    return found


@dataclass(slots=True)
class PreviousRows:
    """The rows of a table, or of a range of it, at the last poll."""

    keys: RowDigests = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Ascending."""
    rows: RowDigests = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    key_values: pa.RecordBatch | None = None
    """The keys themselves, if deletes are searched for."""

    def __len__(self) -> int:
        return len(self.keys)

    def find_known(self, keys: RowDigests, rows: RowDigests) -> tuple[npt.NDArray[np.bool_], ...]:
        """Returns which of these keys existed, and which of them with the same row."""
        if not len(self.keys):
            nothing = np.zeros(len(keys), dtype=bool)
            return nothing, nothing
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        was_there = self.keys[indices] == keys
        return was_there, was_there & (self.rows[indices] == rows)

    def find_gone(self, keys: RowDigests) -> pa.RecordBatch:
        assert self.key_values is not None, "keys are kept where deletes are looked for"
        return self.key_values.take(pa.array(np.flatnonzero(~np.isin(self.keys, keys))))


def remember(
    keys: list[RowDigests], rows: list[RowDigests], key_values: list[pa.RecordBatch]
) -> PreviousRows:
    """Stores several pages; the last row of a repeated key counts."""
    if not keys:
        return PreviousRows()
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    newest = len(all_keys) - 1 - np.unique(all_keys[::-1], return_index=True)[1]
    values = None
    if key_values:
        table = pa.Table.from_batches(key_values).take(pa.array(newest)).combine_chunks()
        values = next(iter(table.to_batches()), key_values[0].slice(0, 0))
    return PreviousRows(all_keys[newest], all_rows[newest], values)


def _bytes_of(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    return column.cast(pa.string()).cast(pa.binary())
