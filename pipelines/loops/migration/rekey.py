"""Which records of a topic tell its newest rows, and whether another key tells those apart."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.arrow_codec import RecordColumns
from headwater.core_log.records.partitioner import murmur2_column
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.migration.recode import Recoder
from headwater.pipelines.loops.migration.repartition import pick_records, stretches
from headwater.pipelines.loops.thread_offload import beside

MERGE_ROWS = 2_000_000
"""Records of one partition that are kept in mind before all but the newest of each key are let
go."""

Pieces = AsyncIterator[tuple[TopicPartition, RecordColumns]]
Schemas = Mapping[int, StoredSchema]
Newest = Mapping[int, Int64Array]
"""By partition the offsets of the records that tell what rows are now, in rising order."""


async def newest_rows(pieces: Pieces, schemas: Schemas, *, topic: str) -> Newest:
    """By the bytes of the key that the records have, as compaction does it."""
    tallies: dict[int, _Tally] = {}
    async for partition, columns in pieces:
        tally = tallies.setdefault(partition.partition, _Tally())
        work = partial(_take, tally, columns, schemas, topic)
        await beside(work, columns.values.nbytes)
    return {number: tally.content() for number, tally in tallies.items()}


async def check_tells_apart(
    pieces: Pieces, newest: Newest, schemas: Schemas, recoder: Recoder, *, key: Sequence[str]
) -> None:
    """Raises ConfigError unless every one of the rows has a new key, and each another one."""
    seen, nameless, topic = [np.zeros(0, np.uint64)], 0, ""
    async for partition, columns in pieces:
        columns, topic = pick_records(columns, newest[partition.partition]), partition.topic
        for piece, stored, _ in stretches(columns, schemas, topic=topic):
            if not recoder.has_key(stored):
                nameless += len(piece)
                continue
            work = partial(_name, recoder, piece, stored)
            keys, nulls = await beside(work, piece.values.nbytes)
            seen.append(keys)
            nameless += nulls
    keys = np.concatenate(seen)
    shared = len(keys) - len(np.unique(keys))
    if nameless or shared:
        raise ConfigError(
            "the new key does not tell the rows of a topic apart, and nothing has been changed",
            hint="choose columns of which no two rows have the same values and none is null; or "
            "take the edit back, run, correct the rows at the source, and ask again",
            topic=topic,
            key=", ".join(key),
            rows_with_null=nameless,
            rows_like_others=shared,
        )


@dataclass(slots=True)
class _Tally:
    """One partition while it is read: of each key 96 bits, which are as good as the key itself."""

    wide: list[Digests] = field(default_factory=list)
    narrow: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    offsets: list[Int64Array] = field(default_factory=list)
    is_there: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    waiting: int = 0

    def take(self, columns: RecordColumns) -> None:
        self.wide.append(digests_of([columns.keys], len(columns)))
        self.narrow.append(murmur2_column(columns.keys))
        self.offsets.append(columns.offsets)
        self.is_there.append(np.asarray(columns.values.is_valid()))
        self.waiting += len(columns)
        if self.waiting > MERGE_ROWS:
            self._merge()

    def content(self) -> Int64Array:
        if not self.offsets:
            return np.zeros(0, np.int64)
        self._merge()
        return self.offsets[0]

    def _merge(self) -> None:
        """A key that has been deleted until here needs no remembering: nothing older is left."""
        wide, narrow = np.concatenate(self.wide), np.concatenate(self.narrow)
        offsets, is_there = np.concatenate(self.offsets), np.concatenate(self.is_there)
        order = np.lexsort((narrow, wide))  # equal keys are neighbours, the later behind
        is_edge = np.diff(wide[order]) != 0
        is_edge |= np.diff(narrow[order]) != 0
        chosen = np.sort(order[np.append(is_edge, True)[: len(order)]])
        chosen = chosen[is_there[chosen]]
        self.wide, self.narrow = [wide[chosen]], [narrow[chosen]]
        self.offsets, self.is_there = [offsets[chosen]], [is_there[chosen]]
        self.waiting = 0


def _take(tally: _Tally, columns: RecordColumns, schemas: Schemas, topic: str) -> None:
    for piece, _, is_truncate in stretches(columns, schemas, topic=topic):
        if is_truncate:
            tally.wide, tally.narrow, tally.offsets, tally.is_there = [], [], [], []
        else:
            tally.take(piece)


def _name(recoder: Recoder, columns: RecordColumns, stored: StoredSchema) -> tuple[Digests, int]:
    """The new keys of rows, and how many of the rows have none."""
    changes = recoder.rekey(columns, stored)
    assert not pc.any(
        pc.equal(changes.operations, pa.scalar(Operation.DELETE.value, pa.uint8()))
    ).as_py(), "the newest record of a deleted row is its tombstone"
    is_null = np.zeros(len(changes), np.bool_)
    for column in changes.keys.columns:
        is_null |= np.asarray(column.is_null())
    keys = changes.keys.filter(pa.array(~is_null))
    return digests_of(keys.columns, keys.num_rows), int(is_null.sum())
