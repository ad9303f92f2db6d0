"""Finds the newest rows of a topic, and checks that a new key distinguishes them."""

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
from headwater.core_log.records.partitioner import murmur2_column
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.loops.migration.recode import Recoder, pick_records, runs
from headwater.pipelines.loops.thread_offload import run_in_thread

MERGE_ROWS = 2_000_000
"""Records of one partition that are remembered before all but the newest of each key are
dropped."""

PartitionParts = AsyncIterator[tuple[TopicPartition, RecordColumns]]
Schemas = Mapping[int, StoredSchema]
Newest = Mapping[int, Int64Array]
"""By partition the offsets of the newest rows' records, in ascending order."""


async def newest_rows(parts: PartitionParts, schemas: Schemas, *, topic: str) -> Newest:
    """Returns them by the bytes of the records' key, as compaction does."""
    tallies: dict[int, _Tally] = {}
    async for partition, columns in parts:
        tally = tallies.setdefault(partition.partition, _Tally())
        work = partial(_take, tally, columns, schemas, topic)
        await run_in_thread(work, columns.values.nbytes)
    return {number: tally.content() for number, tally in tallies.items()}


async def check_tells_apart(
    parts: PartitionParts, newest: Newest, schemas: Schemas, recoder: Recoder, *, key: Sequence[str]
) -> None:
    """Raises ConfigError unless every row has a new key, and no two have the same."""
    seen, nameless, topic = [np.zeros(0, np.uint64)], 0, ""
    async for partition, columns in parts:
        columns, topic = pick_records(columns, newest[partition.partition]), partition.topic
        for part, stored, _ in runs(columns, schemas, topic=topic):
            if not recoder.has_key(stored):
                nameless += len(part)
                continue
            work = partial(_name, recoder, part, stored)
            keys, nulls = await run_in_thread(work, part.values.nbytes)
            seen.append(keys)
            nameless += nulls
    keys = np.concatenate(seen)
    shared = len(keys) - len(np.unique(keys))
    if nameless or shared:
        raise ConfigError(
            "the new key is not unique or has nulls; nothing was changed",
            hint="choose columns that are unique and not null; or revert the change, run, correct "
            "the rows at the source, and try again",
            topic=topic,
            key=", ".join(key),
            rows_with_null=nameless,
            rows_like_others=shared,
        )


@dataclass(slots=True)
class _Tally:
    """The state of one partition during the read: 96 bits of each key, which identify it well
    enough."""

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
        """Drops keys that are deleted up to here: no older record is left."""
        wide, narrow = np.concatenate(self.wide), np.concatenate(self.narrow)
        offsets, is_there = np.concatenate(self.offsets), np.concatenate(self.is_there)
        order = np.lexsort((narrow, wide))  # equal keys are neighbours, the later one last
        is_edge = np.diff(wide[order]) != 0
        is_edge |= np.diff(narrow[order]) != 0
        chosen = np.sort(order[np.append(is_edge, True)[: len(order)]])
        chosen = chosen[is_there[chosen]]
        self.wide, self.narrow = [wide[chosen]], [narrow[chosen]]
        self.offsets, self.is_there = [offsets[chosen]], [is_there[chosen]]
        self.waiting = 0


def _take(tally: _Tally, columns: RecordColumns, schemas: Schemas, topic: str) -> None:
    for part, _, is_truncate in runs(columns, schemas, topic=topic):
        if is_truncate:
            tally.wide, tally.narrow, tally.offsets, tally.is_there = [], [], [], []
        else:
            tally.take(part)


def _name(recoder: Recoder, columns: RecordColumns, stored: StoredSchema) -> tuple[Digests, int]:
    """Returns the new keys of rows, and the number of rows without one."""
    changes = recoder.rekey(columns, stored)
    assert not pc.any(
        pc.equal(changes.operations, pa.scalar(Operation.DELETE.value, pa.uint8()))
    ).as_py(), "the newest record of a deleted row is its tombstone"
    is_null = np.zeros(len(changes), np.bool_)
    for column in changes.keys.columns:
        is_null |= np.asarray(column.is_null())
    keys = changes.keys.filter(pa.array(~is_null))
    return digests_of(keys.columns, keys.num_rows), int(is_null.sum())
