"""Pseudo-random numbers that are a function of seed, name and index."""

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.generator.history import CHUNK_ROWS
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableSchema

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class RandomColumns:
    """A set of random sequences per seed; each name is a sequence of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def numbers(self, name: str, at: Int64Array, *, below: int | Int64Array) -> Int64Array:
        """Returns for each index a number from 0 to `below`, exclusive, by splitmix64."""
        mixed = at.astype(np.uint64) * _STEP + _start_of(self.seed, name)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
        mixed ^= mixed >> np.uint64(31)
        found: Int64Array = (mixed % np.asarray(below).astype(np.uint64)).astype(np.int64)
        return found

    def pick(self, name: str, at: Int64Array, choices: pa.Array) -> pa.Array:
        return choices.take(pa.array(self.numbers(name, at, below=len(choices))))


@cache
def _start_of(seed: int, name: str) -> np.uint64:
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def decimals(unscaled: Int64Array, *, precision: int, scale: int) -> pa.Array:
    """Returns decimals from their digits without the point: an int64 is the lower half of a
    decimal128."""
    halves = np.stack((unscaled, unscaled >> 63), axis=1)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(halves))]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(unscaled), buffers)


def times(microseconds: Int64Array, *, zone: str | None = None) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", zone))


def texts(*words: str | None) -> pa.Array:
    return pa.array(words, pa.string())


def combine_words(first: Sequence[str], second: Sequence[str]) -> pa.Array:
    """Combines every word of one list with every word of the other."""
    return pa.array([f"{one} {other}" for one in first for other in second], pa.string())


def tile(pattern: Sequence[Any], times: int) -> Int64Array:
    return np.tile(np.array(pattern, dtype=np.int64), times)


def without_what_went(
    schema: TableSchema, rows: pa.RecordBatch, codes: npt.NDArray[np.uint8]
) -> pa.RecordBatch:
    """Keeps only the key of deleted rows, because most databases send no more."""
    stays = codes != Operation.DELETE
    if stays.all():
        return rows
    mask = pa.array(stays)
    columns = [
        column if name in schema.key else pc.if_else(mask, column, pa.scalar(None, column.type))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


class InitialRows(NamedTuple):
    """Rows `first` to `end` of table number `table`, and the transactions that read them."""

    table: int
    first: int
    end: int
    transactions: Int64Array
    indexes: Int64Array


class InitialTables:
    """Initial rows table by table, in chunks; a chunk is a transaction."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = tuple(counts)
        chunks = [
            min(CHUNK_ROWS, count - first)
            for count in counts
            for first in range(0, count, CHUNK_ROWS)
        ]
        self._before = np.append(0, np.cumsum(np.array(chunks, dtype=np.int64)))
        self._table_chunks = [-(-count // CHUNK_ROWS) for count in counts]

    @property
    def transactions(self) -> int:
        return len(self._before) - 1

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def rows_before(self, transaction: int) -> int:
        return int(self._before[transaction])

    def transactions_within(self, rows: int) -> int:
        return int(np.searchsorted(self._before, rows, side="right")) - 1

    def readings(self, start: int, end: int) -> Iterator[InitialRows]:
        """Returns the rows of transactions `start` to `end`, exclusive."""
        chunk = 0  # number of the table's first transaction
        for table, (count, chunks) in enumerate(zip(self.counts, self._table_chunks, strict=True)):
            first, last = max(start, chunk), min(end, chunk + chunks)
            if first < last:
                rows = np.arange(
                    (first - chunk) * CHUNK_ROWS, min((last - chunk) * CHUNK_ROWS, count)
                )
                yield InitialRows(
                    table,
                    int(rows[0]),
                    int(rows[-1]) + 1,
                    chunk + rows // CHUNK_ROWS,
                    rows % CHUNK_ROWS,
                )
            chunk += chunks


_KINDS = (
    "amber", "arctic", "brass", "bright", "coastal", "copper", "crimson", "distant", "early",
    "gentle", "golden", "granite", "hidden", "ivory", "little", "lunar", "maple", "misty",
    "northern", "olive", "pale", "quiet", "rapid", "royal", "rustic", "silent", "silver",
    "southern", "steady", "velvet", "violet", "winter",
)  # fmt: skip
_THINGS = (
    "anchor", "barrel", "basket", "beacon", "bridge", "button", "candle", "canvas", "castle",
    "compass", "cradle", "feather", "fiddle", "garden", "hammer", "harbor", "kettle", "ladder",
    "lantern", "mirror", "needle", "orchard", "paddle", "pillow", "quarry", "ribbon", "saddle",
    "shelter", "spindle", "teapot", "window", "workshop",
)  # fmt: skip

NAMES = combine_words(_KINDS, _THINGS)
CITIES = texts(
    "Amsterdam", "Bogotá", "Čakovec", "Dakar", "Edinburgh", "Fukuoka", "Göteborg", "Hanoi",
    "İzmir", "Jaén", "Kraków", "Lyon", "Malmö", "Nairobi", "Øygarden", "Porto", "Québec", "Riga",
    "São Paulo", "Tórshavn", "Ulm", "Valparaíso", "Wien", "Xi'an", "Yerevan", "Zürich",
)  # fmt: skip
NOTES = texts(
    None, None, None, "gift", "leave at the door", 'please write "thank you"', "back\\slash",
    "two\nlines", "a tab\there", "as a présent 🎁", "", "NULL", "'; --",
)  # fmt: skip
STATUSES = texts("new", "paid", "shipped")
