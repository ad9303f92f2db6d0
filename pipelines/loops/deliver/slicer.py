"""Cuts the log into slices that end at commit boundaries of the source."""

from asyncio import gather
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from headwater.core_log.client.gather import together
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import LogRejected, PositionLost
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, Log, RetainedRange, TopicPartition
from headwater.pipelines.journal.commits import Commit, commits_home, load_positions
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.journal.generations import Generations, load_generations
from headwater.pipelines.journal.replacements import mixed_topics
from headwater.pipelines.journal.schemas import every_topic_of, newest_schema
from headwater.pipelines.loops.deliver.cutover import TopicCutovers, prehistory_ends
from headwater.pipelines.loops.deliver.group_offsets import CommitFollower
from headwater.pipelines.loops.deliver.offset_check import (
    REBUILD,
    check_offset,
    epoch_ends,
    lost_topics,
)
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, ConsistentCut, Slice, SplitReader

POLL_MS = 500
MANY_RECORDS, MANY_BYTES = 250_000, 64 << 20
"""Which do not wait for `wait_ms`."""
PREHISTORY_RECORDS = 500_000
"""Records of the time before the oldest commit boundary that one slice has, or the sink's own limit
if that is larger."""


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """Limits after which the next slice is due. A slice can be larger, because a commit is never
    divided."""

    records: int
    bytes: int
    wait_ms: int
    """Least time between two slices; the first change after quiet is due at once, and very many
    changes are due sooner."""


class Slicer:
    """Tracks a sink's offsets, and the commit boundaries known beyond them."""

    def __init__(
        self,
        log: Log,
        pipeline: str,
        *,
        limits: SliceLimits,
        read: Callable[[Slice], AsyncIterator[TableChanges]],
        clock: Clock,
        topics: Collection[str] | None = None,
        split_reader: SplitReader | None = None,
        beginnings: Mapping[TopicPartition, int] | None = None,
        names_mixed_tables: bool = False,
    ) -> None:
        """`topics`: only these topics of the pipeline.

        `beginnings`: where a partition begins of which the target holds nothing, if not at offset
        0. `names_mixed_tables`: whether slices name tables without a consistent state at their end.
        """
        self._beginnings, self._names_mixed_tables = beginnings or {}, names_mixed_tables
        self._log, self._pipeline, self._limits = log, pipeline, limits
        self._wanted = topics
        self._read, self._clock = read, clock
        self._split_reader = split_reader
        self._home = commits_home(pipeline)
        self._offsets: dict[TopicPartition, int] = {}
        self._boundary: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epochs that the target has with its offsets."""
        self._topics: Collection[str] = ()
        """Topics with something to slice."""
        self._commits = CommitFollower(log, pipeline, from_offset=0)
        self._cut: ConsistentCut | None = None
        self._records = self._bytes = 0  # between the last slice and the boundary
        self._oldest_ms = 0  # of the commits between the last slice and the boundary
        self._last_applied_ms: int | None = None
        self._begun_ms = self._took_ms = 0  # the last slice
        self._decided: dict[TopicPartition, int] = {}
        self._decided_at = 0
        self._ends: Mapping[TopicPartition, int] = {}
        self._are_ends_later = False
        """Whether the ends were read after `_decided_at`, so that every commit below is of data
        below them."""
        self._forgets = False
        """Whether stored commits are left out."""
        self._dropped_before: dict[TopicPartition, int] = {}
        """Offsets below which deletes were removed before the start."""
        self._truncated: set[str] = set()
        """Topics that may have truncates between the target's offset and the boundary."""
        self._lost: dict[str, PositionLost] = {}
        self._tables: dict[str, str] = {}
        self._generations, self._crossings = Generations(), TopicCutovers()
        self._of_another_log: AppliedOffset | None = None
        """The target's offset of commit boundaries, if another log has them."""

    @property
    def lost(self) -> Mapping[str, PositionLost]:
        """Topics that are not sliced until the next start, with the reason."""
        return self._lost

    def table_of(self, topic: str) -> str:
        """Returns the source table's name; the topic's own name if nothing was ever written to
        it."""
        return self._tables.get(topic, topic)

    def topics_of(self, table: str) -> frozenset[str]:
        """Returns every topic to which the source's table was written."""
        return frozenset(topic for topic, name in self._tables.items() if name == table)

    def generations_of(self, first: str) -> frozenset[str]:
        """Returns every topic of a table, by the name of the first."""
        return frozenset(self._generations.line_of([self._generations.present(first)]))

    def find_replaced(self, part: Slice) -> set[str]:
        """Returns topics of a slice that begin in it with the whole table, though the target holds
        rows of the former topic."""
        begun = {place.topic for place, applied in part.start.items() if applied.next_offset}
        return {
            place.topic
            for place in part.start
            if place.topic not in begun and self._crossings.is_unfilled(place.topic)
        }

    def lose(self, topic: str, error: PositionLost) -> None:
        """Marks topics as lost; raises the error if no other topic is left."""
        self._lost[topic] = error
        error.facts.setdefault("table", self.table_of(topic))
        if not set(self._topics) - self._lost.keys():
            raise error

    async def start(self, offsets: AppliedOffsets) -> None:
        """Starts at the target's offsets; raises PositionLost if no topic can continue."""
        stored = await every_topic_of(self._log, self._pipeline)
        self._tables = {topic: str(each.schema.table) for topic, each in stored.items()}
        self._offsets = {**self._beginnings}
        self._offsets |= {part: applied.next_offset for part, applied in offsets.items()}
        self._topic_ids = {part.topic: applied.topic_id for part, applied in offsets.items()}
        self._epochs = {part: applied.leader_epoch for part, applied in offsets.items()}
        self._generations = await load_generations(self._log, self._pipeline, stored)
        self._crossings = TopicCutovers()
        self._crossings.add(self._generations, self._offsets)
        topics = {*stored, *self._topic_ids} - self._generations.hidden - {self._home.topic}
        if self._wanted is not None:
            topics &= set(self._wanted)
        former, gone = await self._former_of(topics)
        topics |= former
        if self._wanted is not None:
            self._wanted = topics
        self._topics = topics
        partitions = [part for topic in sorted(topics) for part in await self._meet(topic)]
        await self._meet(self._home.topic)
        # Ends of data are read before ends of boundaries. One transaction decides both, so data
        # below the former has its boundary below the latter.
        bounds = await self._log.bounds(partitions)
        home = (await self._log.bounds([self._home]))[self._home]
        data = {part: applied for part, applied in offsets.items() if part.topic in topics}
        self._lost = {}
        here = {self._home, *partitions}
        known = {
            part: at
            for part, at in offsets.items()
            if part in here and at.topic_id == self._topic_ids[part.topic]
        }
        ends = await epoch_ends(self._log, known)
        for topic, error in lost_topics(data, bounds, self._topic_ids, ends).items():
            self.lose(topic, error)
        for topic, error in gone.items():
            self.lose(topic, error)
        self._begin_boundaries(offsets.get(self._home), home, ends.get(self._home))
        self._dropped_before |= {
            part: each.deletes_dropped_to
            for part, each in bounds.items()
            if part not in self._dropped_before
        }
        self._decided = {part: each.stable for part, each in bounds.items()}
        self._decided_at = home.end
        self._ends, self._are_ends_later = {part: each.end for part, each in bounds.items()}, False
        forgotten = (await read_desired(self._log, self._pipeline)).commits_from
        resume_at = max(self._offsets.get(self._home, 0), forgotten)
        if resume_at < home.start:
            resume_at = home.start
            self._boundary |= await prehistory_ends(self._log, self._pipeline, self._decided)
            self._truncated |= {partition.topic for partition in self._boundary}
        self._forgets = resume_at > home.start
        if self._forgets:  # earlier commits may add to a table that was quarantined
            behind = [
                part for part, each in bounds.items() if each.stable > self._offsets.get(part, 0)
            ]
            self._truncated |= {partition.topic for partition in behind}
        self._commits = CommitFollower(self._log, self._pipeline, from_offset=resume_at)
        self._settle()

    def _begin_boundaries(
        self, applied: AppliedOffset | None, home: Bounds, epoch_end: int | None
    ) -> None:
        """Begins at the first boundary if the target's is of another log, or of a later state of
        this one. Its tables are of this log, for example by a rebuild, or lost."""
        topic_id, self._of_another_log = self._topic_ids[self._home.topic], None
        end = home.end if epoch_end is None else min(home.end, epoch_end)
        if applied is None or (applied.topic_id == topic_id and applied.next_offset <= end):
            return
        self._of_another_log = applied
        del self._offsets[self._home]

    def is_caught_up(self, stopped: Collection[str] = ()) -> bool:
        """Returns whether everything decided before the start, and every boundary known since, is
        applied."""
        return not self._decided and not self._moves(stopped) and not self._commits.has_more

    def hurry(self) -> None:
        """Makes every slice due at once from now on."""
        self._limits = replace(self._limits, wait_ms=0)

    async def next(self, stopped: Collection[str] = ()) -> Slice | None:
        """Returns the next due slice without the topics in `stopped`; None if none came within a
        moment."""
        moves = self._moves(stopped)
        if moves and self._is_due():
            return await self._slice(moves)
        try:
            wait_ms = self._patience_ms() if moves else POLL_MS
            found = await self._commits.next(wait_ms=wait_ms, gathers=bool(moves))
        except PositionLost:  # retention removed boundaries: older records are sliced without them
            await self._start_again()
            return None
        if found is not None:
            await self._take(*found)
        self._settle()
        moves = self._moves(stopped)
        return await self._slice(moves) if moves and self._is_due() else None

    def advance(self, part: Slice) -> None:
        """Moves the offsets to the slice's end."""
        self._offsets |= {partition: applied.next_offset for partition, applied in part.end.items()}
        self._epochs |= {partition: applied.leader_epoch for partition, applied in part.end.items()}
        if self._home in part.end:
            self._of_another_log = None
        behind = {partition.topic for partition in self._moves(())}
        self._truncated -= {partition.topic for partition in part.end} - behind
        self._last_applied_ms = self._clock.monotonic_ms()
        self._took_ms = self._last_applied_ms - self._begun_ms

    async def _start_again(self) -> None:
        self._cut = None
        offsets = {
            part: self._applied(part, at, self._epochs.get(part, -1))
            for part, at in self._offsets.items()
        }
        if self._of_another_log is not None:
            offsets[self._home] = self._of_another_log
        await self.start(offsets)

    async def _meet(self, topic: str) -> list[TopicPartition]:
        self._topic_ids[topic] = await self._log.topic_id(topic)
        count = await self._log.partition_count(topic)
        return [TopicPartition(topic, partition) for partition in range(count)]

    async def _former_of(self, topics: Collection[str]) -> tuple[set[str], dict[str, PositionLost]]:
        """Returns former topics that the target has not finished, and those that it never will
        because they were dropped."""
        found, gone = set[str](), dict[str, PositionLost]()
        for switch in self._crossings.find_unfinished(self._offsets):
            present = self._generations.present(self._generations.first(switch.topic))
            if present not in topics:
                continue
            try:
                await self._log.topic_id(switch.former)
                found.add(switch.former)
            except LogRejected:
                gone[present] = PositionLost(
                    "the topic of the target's offsets was dropped before its end",
                    hint=REBUILD,
                    topic=present,
                    former=switch.former,
                )
        return found, gone

    async def _switch(self, commit: Commit) -> None:
        """Moves tables to their next topics; unfinished former topics are read first."""
        topics = commit.switched
        self._generations = await load_generations(self._log, self._pipeline, topics)
        self._crossings.add(self._generations, self._offsets, at_work=self._topics)
        for switch in self._generations.switches:
            self._tables.setdefault(switch.topic, self.table_of(switch.former))
        if self._wanted is not None:
            line = self._generations.line_of(topics)
            self._wanted = {*self._wanted, *(topics if set(line) & set(self._wanted) else ())}

    async def _take(self, offset: int, commit: Commit) -> None:
        if commit.switched:
            await self._switch(commit)
        beyond = await self._beyond(offset, commit)
        for partition, offset_range in commit.touched.items():
            if partition in beyond:
                continue
            if self._wanted is not None and partition.topic not in self._wanted:
                continue
            if partition.topic not in self._topics:
                if partition.topic in self._generations.hidden:
                    continue
                await self._meet(partition.topic)
                if (schema := await newest_schema(self._log, partition.topic)) is not None:
                    self._tables[partition.topic] = str(schema.table)
                self._topics = {*self._topics, partition.topic}
            self._boundary[partition] = max(self._boundary.get(partition, 0), offset_range.end)
            if offset_range.end > self._offsets.get(partition, 0):
                self._records += offset_range.records
                self._bytes += offset_range.bytes
                self._oldest_ms = self._oldest_ms or commit.committed_ms
        self._truncated |= commit.truncated
        before = self._cut or ConsistentCut(offset, 0, {})
        committed_ms = commit.committed_ms or before.committed_ms  # heartbeats have no time
        self._cut = ConsistentCut(offset, committed_ms, {**before.positions, **commit.positions})

    async def _beyond(self, offset: int, commit: Commit) -> Collection[TopicPartition]:
        """Returns partitions that end before the commit's range: the commit is of a deleted topic
        of the same name, and its end would never come."""
        if offset >= self._decided_at:
            return ()
        found = [
            part
            for part, offset_range in commit.touched.items()
            if offset_range.end > self._ends.get(part, offset_range.end)
        ]
        if not found or self._are_ends_later:
            return found
        bounds = await self._log.bounds(self._ends)
        self._ends, self._are_ends_later = {part: each.end for part, each in bounds.items()}, True
        return await self._beyond(offset, commit)

    def _settle(self) -> None:
        """Notes that all data of the start is below a boundary, once every boundary of the start
        has passed."""
        if self._decided and self._commits.next_offset >= self._decided_at:
            for partition, end in self._decided.items():
                known = max(self._boundary.get(partition, 0), self._offsets.get(partition, 0))
                if self._is_beyond(end, known):
                    self._boundary[partition] = end
                    self._truncated.add(partition.topic)
            self._decided = {}

    def _is_beyond(self, end: int, known: int) -> bool:
        return end > known + (1 if known else 0)  # every transaction ends with a marker

    def _moves(self, stopped: Collection[str]) -> dict[TopicPartition, int]:
        return {
            partition: end
            for partition, end in self._boundary.items()
            if end > self._offsets.get(partition, 0)
            and partition.topic not in stopped
            and partition.topic not in self._lost
            and not self._crossings.waits(partition.topic, self._offsets)
        }

    def _is_due(self) -> bool:
        if self._cut is None:
            return True  # older than every boundary: no later commit can include it
        if self._records >= self._limits.records or self._bytes >= self._limits.bytes:
            return True
        return not self._commits.has_more and self._patience_ms() == 0

    def _patience_ms(self) -> int:
        if self._last_applied_ms is None:
            return 0
        due_ms = self._last_applied_ms + self._wait_ms()
        return min(max(due_ms - self._clock.monotonic_ms(), 0), POLL_MS)

    def _wait_ms(self) -> int:
        """Where many changes wait, they wait half as long as the last slice took: where the target
        takes long for a slice, the next one is larger."""
        is_much = self._records >= MANY_RECORDS or self._bytes >= MANY_BYTES
        return min(self._limits.wait_ms, self._took_ms // 2) if is_much else self._limits.wait_ms

    async def _slice(self, moves: dict[TopicPartition, int]) -> Slice | None:
        topics = sorted({partition.topic for partition in moves})
        retained, ids = await gather(
            self._log.retained_ranges([*moves, self._home]),
            together(map(self._log.topic_id, topics)),
        )
        kept = {part: retained[part] for part in moves}
        for topic, topic_id in zip(topics, ids, strict=True):
            if topic_id != self._topic_ids[topic]:
                error = PositionLost(
                    "the topic was deleted and recreated while the sink read it",
                    hint=REBUILD,
                    topic=topic,
                )
                self.lose(topic, error)
        self._lose_what_aged_out(kept)
        moves = {part: end for part, end in moves.items() if part.topic not in self._lost}
        if not moves:
            return None
        cut = self._cut
        if cut is None:  # only records older than every boundary so far
            moves = self._first_part(moves)
        else:
            moves = moves | {self._home: self._commits.next_offset}
        self._records = self._bytes = 0
        oldest_ms, self._oldest_ms = self._oldest_ms, 0
        moving = {partition.topic for partition in moves}
        left_out = await self._find_mixed({**self._offsets, **moves})
        self._begun_ms = self._clock.monotonic_ms()
        return Slice(
            log=self._log,
            start={part: self._start_of(part) for part in moves},
            end={
                part: self._applied(part, offset, retained[part].leader_epoch)
                for part, offset in moves.items()
            },
            cut=cut,
            read=self._read,
            truncated=frozenset(self._truncated & moving),
            kept=kept,
            split_reader=self._split_reader,
            is_whole=self._are_all_at_the_cut(moves, left_out),
            left_out=left_out,
            oldest_ms=oldest_ms,
        )

    async def _find_mixed(self, offsets: Mapping[TopicPartition, int]) -> frozenset[str]:
        """Returns topics, with their former ones, of tables that the source is reading again."""
        if not self._names_mixed_tables:
            return frozenset()
        positions = await load_positions(self._log, self._pipeline)
        found = mixed_topics(positions, offsets, self._topic_ids)
        return frozenset(self._generations.line_of(found))

    def _are_all_at_the_cut(
        self, moves: Mapping[TopicPartition, int], left_out: Collection[str]
    ) -> bool:
        """Returns whether all tables are at the cut after this slice. For tables quarantined
        earlier this is known only after every boundary of that time."""
        offsets = {**self._offsets, **moves}
        ends = {part: end for part, end in self._boundary.items() if part.topic not in left_out}
        is_lost = bool(self._lost.keys() - left_out)
        if is_lost or any(end > offsets.get(part, 0) for part, end in ends.items()):
            return False
        return not self._forgets or not any(
            self._is_beyond(end, max(self._boundary.get(part, 0), offsets.get(part, 0)))
            for part, end in self._decided.items()
            if part.topic not in left_out
        )

    def _lose_what_aged_out(self, kept: Mapping[TopicPartition, RetainedRange]) -> None:
        """Marks topics lost whose deletes were removed while they were quarantined or slow."""
        for part, retained in kept.items():
            dropped_to = retained.deletes_dropped_to
            if dropped_to <= self._dropped_before.get(
                part, 0
            ):  # empty targets have nothing to lose
                dropped_to = 0
            try:
                check_offset(
                    part,
                    self._offsets.get(part, 0),
                    replace(retained, deletes_dropped_to=dropped_to),
                )
            except PositionLost as error:
                self.lose(part.topic, error)

    def _first_part(self, moves: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns a reasonable part of a range without boundaries. The partitions of a topic stay
        together, because a truncate is one event in all of them."""
        left = max(PREHISTORY_RECORDS, self._limits.records)
        part_ends: dict[TopicPartition, int] = {}
        for topic in sorted({partition.topic for partition in moves}):
            theirs = {part: end for part, end in moves.items() if part.topic == topic}
            if len(theirs) == 1:
                [(part, end)] = theirs.items()
                theirs = {part: min(end, self._offsets.get(part, 0) + left)}
            part_ends |= theirs
            left -= sum(end - self._offsets.get(part, 0) for part, end in theirs.items())
            if left <= 0:
                break
        return part_ends

    def _start_of(self, partition: TopicPartition) -> AppliedOffset:
        if partition == self._home and self._of_another_log is not None:
            return self._of_another_log
        offset, epoch = self._offsets.get(partition, 0), self._epochs.get(partition, -1)
        return self._applied(partition, offset, epoch)

    def _applied(self, partition: TopicPartition, offset: int, epoch: int) -> AppliedOffset:
        return AppliedOffset(self._topic_ids[partition.topic], offset, epoch)
