"""A pipeline's commits in order, and the place of a past moment among them."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import numpy as np

from headwater.core_log.foundation.errors import ConfigError, PositionLost
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import AT_HEADER
from headwater.pipelines.journal.commits import (
    NO_TIME,
    Commit,
    OffsetRange,
    commits_home,
    decode_commits,
    load_positions,
)
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.time_travel.history.as_of import (
    STREAM,
    PositionAsOf,
    TimeAsOf,
    check_same_kind,
    format_position,
    parse_position,
)

LIMIT = FetchLimit()
LINEAR_OFFSETS = 20_000
"""Fewer commits than this are read one by one; more are first searched by halves."""

IndexedCommit = tuple[int, Commit]
"""A commit and its offset in `__headwater_commits`."""


class CommitIndex:
    """Finds the commits after a moment."""

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._home = commits_home(pipeline)

    async def ends(
        self,
        as_of: TimeAsOf | PositionAsOf,
        partitions: Collection[TopicPartition],
        *,
        is_recent: bool = False,
    ) -> dict[TopicPartition, int]:
        """Returns the end of each partition: the start of the first later transaction in it.

        For the newest moment no topic of that time is gone.
        """
        ends, bounds = await self._ends(as_of, partitions, is_recent=is_recent)
        empty = [partition for partition, end in ends.items() if not end]
        if empty and not is_recent:
            await self._check_was_empty(as_of, ends, bounds)
        return ends

    async def begins(
        self, as_of: TimeAsOf | PositionAsOf, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Returns the begin of each partition's records after the moment.

        Before the very first commit a partition is empty; before the oldest stored one its state is
        unknown.
        """
        home = (await self._log.bounds([self._home]))[self._home]
        if home.start == 0 and await self._is_before_all(as_of):
            bounds = await self._log.bounds(partitions)
            return {partition: bound.start for partition, bound in bounds.items()}
        return (await self._ends(as_of, partitions, is_recent=False))[0]

    async def _ends(
        self,
        as_of: TimeAsOf | PositionAsOf,
        partitions: Collection[TopicPartition],
        *,
        is_recent: bool,
    ) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, Bounds]]:
        bounds = await self._log.bounds(partitions)
        ids = {part.topic: await self._log.topic_id(part.topic) for part in partitions}
        ends = {partition: bounds[partition].stable for partition in partitions}
        first = await self._first_after(as_of)
        if first is not None:
            if await self._is_before_all(as_of):
                raise await self._too_old(as_of, bounds)
            ends |= await self._starts_after(as_of, first[0], partitions, ids)
        else:
            if isinstance(as_of, PositionAsOf) and not is_recent:
                await self._check_reached(as_of)
            if await self._oldest_commit() is None:
                await self._check_nothing_since(as_of, bounds)
        empty = {partition.topic for partition, end in ends.items() if not end}
        if empty and not is_recent:
            await self._check_never_others(as_of, empty, ids)
        return ends, bounds

    async def _is_before_all(self, as_of: TimeAsOf | PositionAsOf) -> bool:
        """Returns whether the oldest comparable commit comes later as a whole."""
        start, end = await self._start(), (await self._log.bounds([self._home]))[self._home].stable
        oldest = await self._next_judged(as_of, start, end)
        if oldest is None or not _is_after(as_of, oldest[1]):
            return False
        return not await self._holds_any(as_of, oldest[1])

    async def _starts_after(
        self,
        as_of: TimeAsOf | PositionAsOf,
        first: int,
        partitions: Collection[TopicPartition],
        ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Returns the begins of partitions that any later commit touches."""
        ends, open_ = dict[TopicPartition, int](), set(partitions)
        async for offset, commit in self._commits(first):
            for partition in open_ & commit.touched.keys():
                _check_same(as_of, partition.topic, commit, ids)
                offset_range = commit.touched[partition]
                # Records that were copied from a former topic are older than its boundary.
                is_divided = offset == first or partition.topic in commit.switched
                ends[partition] = (
                    await self._find_split_commit(as_of, partition, offset_range)
                    if is_divided
                    else offset_range.first
                )
            open_ -= commit.touched.keys()
            if not open_:
                break
        return ends

    async def _check_never_others(
        self, as_of: TimeAsOf | PositionAsOf, topics: Collection[str], ids: Mapping[str, str]
    ) -> None:
        """Raises if a topic without earlier records is another one of the same name."""
        async for _, commit in self._commits(await self._start()):
            for topic in set(topics) & {partition.topic for partition in commit.touched}:
                _check_same(as_of, topic, commit, ids)

    async def _check_was_empty(
        self,
        as_of: TimeAsOf | PositionAsOf,
        ends: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, Bounds],
    ) -> None:
        """Raises if the rows of a topic without earlier records existed before it was first
        read."""
        for topic in {partition.topic for partition in ends}:
            theirs = [partition for partition in ends if partition.topic == topic]
            if any(ends[partition] for partition in theirs):
                continue
            bound = [part for part in theirs if bounds[part].stable > bounds[part].start]
            if any([await self._begins_with_rows(part, bounds[part].start) for part in bound]):
                raise PositionLost(
                    "the table was first read after this point in time; earlier rows are unknown",
                    hint=f"the oldest possible is {await self._first_of(topic)}",
                    asked=str(as_of),
                    topic=topic,
                )

    async def _begins_with_rows(self, partition: TopicPartition, start: int) -> bool:
        one_batch, isolation = FetchLimit(bytes_max=1), Isolation.COMMITTED
        for part in await self._log.fetch({partition: start}, limit=one_batch, isolation=isolation):
            decoded = await RecordDecoder(self._log).decode(
                part, from_offset=start, end=part.next_offset, skipped=frozenset()
            )
            for each in decoded:
                return each.changes.operations[0].as_py() in (Operation.READ, Operation.REREAD)
        return False

    async def _first_of(self, topic: str) -> str:
        async for _, commit in self._commits(await self._start()):
            is_of_topic = any(partition.topic == topic for partition in commit.touched)
            if is_of_topic and commit.committed_ms != NO_TIME:
                return time_text(commit.committed_ms)
        return "now"

    async def newest(self, offsets: int) -> AsyncIterator[Commit]:
        """Returns the newest commits, oldest first: all within this many offsets."""
        end = (await self._log.bounds([self._home]))[self._home].stable
        async for _, commit in self._commits(max(await self._start(), end - offsets)):
            yield commit

    async def find_truncated(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> frozenset[str]:
        """Returns topics that may have truncates in the range: by its commits, or because commits
        of their oldest changes are gone."""
        found, first = set[str](), dict[TopicPartition, int]()
        async for _, commit in self._commits(await self._start()):
            found |= commit.truncated
            for partition, offset_range in commit.touched.items():
                first.setdefault(partition, offset_range.first)
        return frozenset(
            partition.topic
            for partition, at in end.items()
            if at > start[partition]
            and (partition.topic in found or first.get(partition, at) > start[partition])
        )

    async def oldest(self, bounds: Mapping[TopicPartition, Bounds]) -> str:
        """Returns the oldest moment that compaction has left whole, in the form of a command's
        argument."""
        waiting = {part: bound.cleaned_to for part, bound in bounds.items() if bound.cleaned_to > 0}
        named = sorted((part.partition, bound.cleaned_to) for part, bound in bounds.items())
        offsets = ",".join(f"{number}:{max(offset, 0)}" for number, offset in named)
        found: Commit | None = None
        async for _, commit in self._commits(await self._start()):
            touched = {part: commit.touched[part] for part in waiting if part in commit.touched}
            if found is None or any(at.first < waiting[part] for part, at in touched.items()):
                found = commit if commit.touched and commit.positions else found
            for part, at in touched.items():
                if at.first >= waiting[part]:
                    del waiting[part]
            if found is not None and not waiting:
                break
        if found is None:
            return f"offset {offsets}"
        stream = found.positions.get(STREAM, "")
        has_order = parse_position(stream) is not None
        position = f", position {format_position(stream)}" if has_order else ""
        return f"{time_text(found.committed_ms)}{position}, offset {offsets}"

    async def _first_after(self, as_of: TimeAsOf | PositionAsOf) -> IndexedCommit | None:
        low, high = await self._start(), (await self._log.bounds([self._home]))[self._home].end
        answer: IndexedCommit | None = None
        while high - low > LINEAR_OFFSETS:
            middle = (low + high) // 2
            found = await self._next_judged(as_of, middle, high)
            if found is None or _is_after(as_of, found[1]):
                answer, high = found or answer, middle
            else:
                low = found[0] + 1
        async for offset, commit in self._commits(low):
            if offset >= high:
                break
            if _is_after(as_of, commit):
                return offset, commit
        return answer

    async def _next_judged(
        self, as_of: TimeAsOf | PositionAsOf, start: int, end: int
    ) -> IndexedCommit | None:
        async for offset, commit in self._commits(start):
            if offset >= end:
                return None
            if _is_after(as_of, commit) is not None:
                return offset, commit
        return None

    async def _commits(self, start: int) -> AsyncIterator[IndexedCommit]:
        """Yields commits from an offset to the present end."""
        end = (await self._log.bounds([self._home]))[self._home].stable
        offset = start
        while offset < end:
            wanted = {self._home: offset}
            fetched = await self._log.fetch(wanted, limit=LIMIT, isolation=Isolation.COMMITTED)
            for part in fetched:
                columns = arrow_codec.decode(
                    part.data, from_offset=offset, partition=part.partition
                )
                for placed in decode_commits(columns, self._pipeline):
                    yield placed
                offset = part.next_offset

    async def _start(self) -> int:
        bounds = (await self._log.bounds([self._home]))[self._home]
        return max(bounds.start, (await read_desired(self._log, self._pipeline)).commits_from)

    async def _oldest_commit(self) -> IndexedCommit | None:
        async for placed in self._commits(await self._start()):
            return placed
        return None

    async def _holds_any(self, as_of: TimeAsOf | PositionAsOf, commit: Commit) -> bool:
        for partition, offset_range in commit.touched.items():
            if await self._find_split_commit(as_of, partition, offset_range) > offset_range.first:
                return True
        return False

    async def _check_nothing_since(
        self, as_of: TimeAsOf | PositionAsOf, bounds: Mapping[TopicPartition, Bounds]
    ) -> None:
        """Checks that no change came since, which is all that is known after all commits have
        expired."""
        if all(bound.stable == 0 for bound in bounds.values()):
            return
        if isinstance(as_of, TimeAsOf):
            later = await self._log.offsets_at(bounds, timestamp_ms=as_of.at_ms)
            if all(later[part] >= bound.stable for part, bound in bounds.items()):
                return
        raise await self._too_old(as_of, bounds)

    async def _too_old(
        self, as_of: TimeAsOf | PositionAsOf, bounds: Mapping[TopicPartition, Bounds]
    ) -> PositionLost:
        return PositionLost(
            "the log has no source commit before this point in time",
            hint=f"the oldest possible is {await self.oldest(bounds)}",
            asked=str(as_of),
            pipeline=self._pipeline,
        )

    async def _check_reached(self, as_of: PositionAsOf) -> None:
        """Raises if the log may lack transactions that the source committed before the moment."""
        reached = (await load_positions(self._log, self._pipeline)).get(STREAM, "")
        if not as_of.is_reached(check_same_kind(as_of, reached)):
            raise ConfigError(
                "the log has not reached this source position yet",
                asked=as_of.position,
                reached=reached,
                hint="give an earlier one, or wait: headwater status --positions shows both",
            )

    async def _find_split_commit(
        self, as_of: TimeAsOf | PositionAsOf, partition: TopicPartition, offset_range: OffsetRange
    ) -> int:
        """Finds the first later source transaction within a log transaction of several."""
        decoder, offset = RecordDecoder(self._log), offset_range.first
        while offset < offset_range.end:
            wanted = {partition: offset}
            fetched = await self._log.fetch(wanted, limit=LIMIT, isolation=Isolation.COMMITTED)
            if not fetched:
                break  # compaction has removed all that was left
            part = fetched[0]
            if isinstance(as_of, TimeAsOf):
                decoded = await decoder.decode(
                    part, from_offset=offset, end=offset_range.end, skipped=frozenset()
                )
                later = _later_times([each.changes for each in decoded], as_of.at_ms)
            else:
                columns = arrow_codec.decode(
                    part.data, from_offset=offset, partition=part.partition
                )
                later = _later_commits(columns, as_of)
            if later is not None:
                return min(later, offset_range.end)
            offset = part.next_offset
        return offset_range.end


def _is_after(as_of: TimeAsOf | PositionAsOf, commit: Commit) -> bool | None:
    """Returns whether a part of it is later; None if the commit does not say."""
    if isinstance(as_of, TimeAsOf):
        is_of_source = commit.touched and commit.positions
        return commit.committed_ms > as_of.at_ms if is_of_source else None
    position = commit.positions.get(STREAM)
    if position is None:
        return None
    return as_of.is_behind(check_same_kind(as_of, position))


def _later_times(decoded: Sequence[TableChanges], at_ms: int) -> int | None:
    for changes in decoded:
        assert changes.log_offsets is not None, "changes of the log have offsets"
        times_ms = changes.committed_us.to_numpy() // 1_000
        places = np.flatnonzero(times_ms > at_ms)
        if len(places):
            return int(changes.log_offsets[int(places[0])].as_py())
    return None


def _later_commits(columns: RecordColumns, as_of: PositionAsOf) -> int | None:
    if not len(columns):
        return None
    at = header_column(columns.headers, AT_HEADER).fill_null(b"").dictionary_encode()
    commits = [each.decode().partition("#")[0] for each in at.dictionary.to_pylist()]
    is_later = [as_of.excludes(commit) for commit in commits]
    places = np.flatnonzero(np.array(is_later)[at.indices.to_numpy()])
    return int(columns.offsets[places[0]]) if len(places) else None


def _check_same(
    as_of: TimeAsOf | PositionAsOf, topic: str, commit: Commit, ids: Mapping[str, str]
) -> None:
    """Raises if the topic of that time is gone: another one of its name has other records."""
    if commit.topic_ids.get(topic, ids[topic]) != ids[topic]:
        raise PositionLost(
            "the topic was deleted and recreated since this point in time",
            hint="choose a point in time after the new topic's first record",
            asked=str(as_of),
            topic=topic,
        )
