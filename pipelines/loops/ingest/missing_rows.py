"""Finds rows of the log that the source no longer has after a re-read, while changes go on."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.client.gather import in_thread, let_go
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.replacements import StoredReplacement
from headwater.pipelines.journal.schemas import newest_schema
from headwater.pipelines.loops.deliver.slice_reader import changes_at

PASS_RECORDS = 4_000_000
"""Keys remembered at a time, about; a partition with more is read several times."""
MERGE_RECORDS = 1_000_000
DELETES_AT_ONCE = 5_000
"""Deletes of one log transaction: changes of all tables wait for its end."""
NO_OFFSET = -1


class FoundRows(NamedTuple):
    """Deletes of rows that the source no longer has."""

    done: StoredReplacement
    deletes: Sequence[TableChanges]
    ends: Mapping[int, int] | None = None
    """Once all deletes are in the log: the end of the last record of each partition."""


class MissingRows:
    """Looks for the missing rows of one re-read after the other. Their deletes are appended by the
    owner of the writer, between two of its transactions, when `is_ready`."""

    def __init__(self, log: Log, wake: Callable[[], None]) -> None:
        """`wake` makes the owner look at `is_ready`, should it wait for changes."""
        self._log, self._wake = log, wake
        self._search: _Search | None = None

    async def aclose(self) -> None:
        await self.follow(())

    async def follow(self, complete: Sequence[StoredReplacement]) -> None:
        """Looks for the rows of the first of these re-reads; the search for any other ends."""
        search = self._search
        if search is not None and search.done not in complete:
            await let_go(search.task)
            self._search = search = None
        if search is None and complete:
            self._search = _Search(self._log, complete[0], self._wake)

    @property
    def is_ready(self) -> bool:
        return self._search is not None and self._search.is_ready.is_set()

    async def take(self) -> FoundRows:
        """Waits until some are found, or all. Nothing else may be appended before their deletes."""
        assert self._search is not None, "a re-read is followed before its rows are taken"
        return await self._search.take()


class _Search:
    """The search for one re-read: partition by partition, in passes that bound the memory."""

    def __init__(self, log: Log, done: StoredReplacement, wake: Callable[[], None]) -> None:
        self.done, self._log, self._wake = done, log, wake
        self.is_ready, self._is_taken = asyncio.Event(), asyncio.Event()
        self._found: GoneKeys | None = None
        self._searched: dict[TopicPartition, GoneKeys] = {}
        """The last pass of each partition, which has found all by now."""
        self._failure: Exception | None = None
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._look()
        except Exception as error:
            self._failure = error  # raised where the rows are taken
        self._found = None
        self.is_ready.set()
        self._wake()

    async def _look(self) -> None:
        done = self.done
        if await self._log.topic_id(done.topic) != done.topic_id:
            return  # the topic was recreated meanwhile, and its offsets mean other records
        starts = {TopicPartition(done.topic, each): at for each, at in done.starts.items()}
        bounds = await self._log.bounds(starts)
        for place, start in starts.items():
            records = bounds[place].end - bounds[place].start
            passes = 1 + records // PASS_RECORDS
            for number in range(passes):
                found = GoneKeys(self._log, place, start, passes=passes, number=number)
                self._searched[place] = found
                await found.read_on()
                while found.has_any:
                    await self._hand_over(found)
                    await found.read_on()

    async def _hand_over(self, found: "GoneKeys") -> None:
        self._found = found
        self._is_taken.clear()
        self.is_ready.set()
        self._wake()
        await self._is_taken.wait()

    async def take(self) -> FoundRows:
        await self.is_ready.wait()
        if self._failure is not None:
            raise self._failure
        if (found := self._found) is None:
            return FoundRows(self.done, (), await self._ends())
        await found.read_on()
        deletes = await self._deletes_at(found.place, found.take(DELETES_AT_ONCE))
        self.is_ready.clear()
        self._is_taken.set()
        return FoundRows(self.done, deletes)

    async def _ends(self) -> dict[int, int]:
        """A marker of a transaction behind the last record is no part of it."""
        for each in self._searched.values():
            await each.read_on()
        return {place.partition: each.last_end for place, each in self._searched.items()}

    async def _deletes_at(
        self, place: TopicPartition, offsets: Int64Array
    ) -> Sequence[TableChanges]:
        schema = await newest_schema(self._log, self.done.topic)
        if schema is None or not schema.key or not len(offsets):
            return ()
        found = await changes_at(self._log, [(place, each) for each in offsets.tolist()], None)
        deletes = [_deletes_of(each, schema, self.done) for each in found]
        return [each for each in deletes if len(each)]


def _deletes_of(
    changes: TableChanges, schema: TableSchema, done: StoredReplacement
) -> TableChanges:
    """Returns deletes under the newest schema, independent of the row's own."""
    is_row = changes.operations.to_numpy() != Operation.DELETE
    changes = changes.filter(pa.array(is_row))
    columns = [
        changes.rows.column(column.name).cast(column.type)
        if column.name in schema.key
        else pa.nulls(len(changes), column.type)
        for column in schema.columns
    ]
    return replace(
        changes,
        schema=schema,
        rows=pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        operations=pa.array(np.full(len(changes), Operation.DELETE, np.uint8)),
        source=done.source,
        commits=done.commit,
        indexes=None,
        before=None,
        log_partition=None,
        log_offsets=None,
    )


@dataclass(slots=True)
class GoneKeys:
    """The keys of one pass over a partition whose newest record is a row from before `start`."""

    log: Log
    place: TopicPartition
    start: int
    passes: int
    number: int
    has_any: bool = False
    last_end: int = 0
    """Behind the last record that was read."""
    _end: int = 0
    """Everything before it has been read."""
    _digests: list[Digests] = field(default_factory=list)
    _offsets: list[Int64Array] = field(default_factory=list)
    """`NO_OFFSET` for a tombstone, and for a record at or after `start`."""
    _added: int = 0

    async def read_on(self) -> None:
        """Reads what has been appended since the last call; keys that were written again are not
        missing."""
        end = (await self.log.bounds([self.place]))[self.place].end
        if end > self._end:
            async for columns in read_decided(self.log, self.place, from_offset=self._end, end=end):
                await in_thread(partial(self._take, columns))
            self._end = end
        await in_thread(self._merge)
        is_missing = self._offsets[0] != NO_OFFSET
        self._digests[0] = self._digests[0][is_missing]
        self._offsets[0] = self._offsets[0][is_missing]
        self.has_any = bool(len(self._offsets[0]))

    def take(self, count: int) -> Int64Array:
        """Returns the offsets of the first of them, which are forgotten."""
        taken, self._offsets[0] = self._offsets[0][:count], self._offsets[0][count:]
        self._digests[0] = self._digests[0][count:]
        return taken

    def _take(self, columns: RecordColumns) -> None:
        if not len(columns.offsets):
            return
        self.last_end = int(columns.offsets[-1]) + 1
        markers = np.flatnonzero(np.asarray(pc.equal(columns.keys, TRUNCATE_KEY).fill_null(False)))
        first = 0
        if len(markers):  # records before a truncate are gone
            first = int(markers[-1]) + 1
            self._digests, self._offsets, self._added = [], [], 0
        digests = digests_of([columns.keys], len(columns.offsets))[first:]
        offsets = columns.offsets[first:]
        is_row = np.asarray(columns.values.is_valid())[first:] & (offsets < self.start)
        is_chosen = digests % np.uint64(self.passes) == np.uint64(self.number)
        self._digests.append(digests[is_chosen])
        self._offsets.append(np.where(is_row, offsets, NO_OFFSET)[is_chosen])
        self._added += int(np.count_nonzero(is_chosen))
        if self._added > MERGE_RECORDS:
            self._merge()

    def _merge(self) -> None:
        if not self._digests:
            self._digests, self._offsets = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        digests, offsets = np.concatenate(self._digests), np.concatenate(self._offsets)
        order = np.argsort(digests, kind="stable")  # the last of each key is the newest
        ordered = digests[order]
        is_last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
        self._digests, self._offsets = [ordered[is_last]], [offsets[order][is_last]]
        self._added = 0
