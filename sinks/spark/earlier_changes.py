"""Finds re-read rows that an append table of the lake has with equal values, in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.log import first_generation, generation_number
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.sinks.object_names import OFFSET, OP, PARTITION, TOPIC
from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.key_ranges import DataFile
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.storage_location import StorageLocation

OFFSET_BITS = 48
"""No partition ever has more records."""
NONE = -1
"""Stands for an order before all others."""
ASKED_AT_ONCE = 1_000_000
"""Re-read rows that are searched in one pass over the files, with about fifty bytes each."""


class EarlierChanges:
    """Keeps each re-read row's last previous change of its key, among the changes seen so far."""

    def __init__(self, again: pa.RecordBatch, layout: LakeTableLayout) -> None:
        self._key, self._values = list(layout.key), layout.compared
        keys, orders = self._keys_of(again), orders_of(again).to_numpy()
        self._sorted = np.lexsort((orders, keys))
        self._keys, self._orders = keys[self._sorted], orders[self._sorted]
        self._digests = self._digests_of(again)[self._sorted]
        self._origins = _origin_digests(again)[self._sorted]
        self._last = np.full(len(again), NONE)
        self._last_digests: Digests = np.zeros(len(again), np.uint64)
        self._has_row = np.zeros(len(again), np.bool_)
        self._truncates: list[tuple[Digests, Int64Array]] = []

    @property
    def wanted(self) -> list[str]:
        """Returns the columns that `choose` needs."""
        return [*self._key, OP, TOPIC, PARTITION, OFFSET]

    def choose(self, batch: pa.RecordBatch) -> Int64Array:
        """Returns the places of changes that are newer than all seen so far of their keys."""
        orders, is_truncate = orders_of(batch).to_numpy(), _is(batch, "t")
        if is_truncate.any():
            at = _origin_digests(batch)[is_truncate]
            self._truncates.append((at, orders[is_truncate]))
        rows, asked = self._matches(batch)
        is_before = (orders[rows] < self._orders[asked]) & (orders[rows] > self._last[asked])
        return np.unique(rows[is_before & ~is_truncate[rows]])

    def take(self, chosen: pa.RecordBatch) -> None:
        """Takes chosen changes, with their values."""
        orders, digests = orders_of(chosen).to_numpy(), self._digests_of(chosen)
        is_row = ~_is(chosen, "d")
        rows, asked = self._matches(chosen)
        is_before = (orders[rows] < self._orders[asked]) & (orders[rows] > self._last[asked])
        rows, asked = rows[is_before], asked[is_before]
        order = np.argsort(orders[rows], kind="stable")  # of several for one place the last stays
        rows, asked = rows[order], asked[order]
        self._last[asked] = orders[rows]
        self._last_digests[asked] = digests[rows]
        self._has_row[asked] = is_row[rows]

    def find_repeated(self) -> BoolArray:
        """Returns which re-read rows have the values of their previous change."""
        same = self._has_row & (self._last_digests == self._digests)
        for origins, orders in self._truncates:
            for origin, at in zip(origins, orders, strict=True):
                is_between = (self._last < at) & (at < self._orders)
                same &= ~((self._origins == origin) & is_between)
        found: BoolArray = np.zeros(len(same), np.bool_)
        found[self._sorted] = same
        return found

    def _matches(self, batch: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
        """Returns pairs of a change and a re-read row of the same key."""
        keys = self._keys_of(batch)
        first = np.searchsorted(self._keys, keys, side="left")
        counts = np.searchsorted(self._keys, keys, side="right") - first
        rows = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, np.repeat(first, counts) + within

    def _keys_of(self, batch: pa.RecordBatch) -> Digests:
        return digests_of(batch.select(self._key).columns, len(batch))

    def _digests_of(self, batch: pa.RecordBatch) -> Digests:
        return digests_of(batch.select(self._values).columns, len(batch))


def find_repeated(
    place: StorageLocation,
    files: Sequence[DataFile],
    layout: LakeTableLayout,
    again: pa.RecordBatch,
    beside: Iterable[pa.RecordBatch] = (),
) -> BoolArray:
    """Returns which re-read rows have the values of their key's previous change. That is in the
    files, in `beside` or among the rows themselves."""
    earlier = EarlierChanges(again, layout)
    for batch in [*beside, again]:
        earlier.take(batch.take(pa.array(earlier.choose(batch))))
    for chosen in parquet_files.stream_chosen(
        place, files, layout, only=earlier.wanted, choose=earlier.choose
    ):
        earlier.take(chosen)
    return earlier.find_repeated()


def without_repeated(
    place: StorageLocation,
    files: Sequence[DataFile],
    layout: LakeTableLayout,
    again: Sequence[DataFile],
) -> Iterator[pa.Table]:
    """Yields the re-read rows in the files `again` that have new values. `files` are those of the
    table and of the slice's other changes."""
    held, rows = list[pa.RecordBatch](), 0
    known = [*files, *again]
    for batch in parquet_files.stream(place, again, layout):
        held.append(batch)
        rows += len(batch)
        if rows >= ASKED_AT_ONCE:
            yield _without_repeated(place, known, layout, pa.concat_batches(held))
            held, rows = [], 0
    if held:
        yield _without_repeated(place, known, layout, pa.concat_batches(held))


def _without_repeated(
    place: StorageLocation,
    files: Sequence[DataFile],
    layout: LakeTableLayout,
    again: pa.RecordBatch,
) -> pa.Table:
    left = again.filter(pa.array(~find_repeated(place, files, layout, again)))
    return pa.Table.from_batches([left])


def orders_of(batch: pa.RecordBatch) -> pa.Int64Array:
    """Returns comparable offsets; those of a later topic generation are greater than all earlier
    ones."""
    topics = batch.column(TOPIC).dictionary_encode()
    numbers = np.array(
        [generation_number(topic) - 1 for topic in topics.dictionary.to_pylist()], np.int64
    )
    return pc.add(batch.column(OFFSET), pa.array(numbers[topics.indices.to_numpy()] << OFFSET_BITS))


def origins_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the first generation of each change's topic, and its partition."""
    topics = batch.column(TOPIC).dictionary_encode()
    firsts = pa.array(
        [first_generation(topic) for topic in topics.dictionary.to_pylist()], pa.string()
    )
    return pa.RecordBatch.from_arrays(
        [firsts.take(topics.indices), batch.column(PARTITION)], [TOPIC, PARTITION]
    )


def _origin_digests(batch: pa.RecordBatch) -> Digests:
    return digests_of(origins_of(batch).columns, len(batch))


def _is(batch: pa.RecordBatch, letter: str) -> BoolArray:
    return np.asarray(pc.equal(batch.column(OP), letter).fill_null(False))
