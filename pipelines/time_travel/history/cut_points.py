"""The offsets of a past moment: per partition the end of its records."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.errors import ConfigError, PositionLost
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Bounds, FetchLimit, Isolation, Log, TopicPartition
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import carried_marks
from headwater.pipelines.journal.replacements import mixed_in
from headwater.pipelines.terminal.starting_points import EARLIEST, LATEST
from headwater.pipelines.time_travel.history.as_of import AsOf, OffsetsAsOf, parse_as_of
from headwater.pipelines.time_travel.history.commit_index import CommitIndex

Ends = Mapping[TopicPartition, int]
ONE_BATCH = FetchLimit(bytes_max=1)
"""A fetch returns at least one batch, even above the limit."""


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A state of some topics: all records below `ends`."""

    ends: Ends
    meant: str
    """The moment in the user's words."""


async def newest_cut_point(log: Log, partitions: Collection[TopicPartition]) -> CutPoint:
    """Returns the present end of all decided records."""
    bounds = await log.bounds(partitions)
    return CutPoint({part: bounds[part].stable for part in partitions}, "now")


async def count_later(log: Log, ends: Ends) -> int:
    """Returns how many offsets follow, from the first committed record of each partition on."""
    count = 0
    for partition, bound in (await log.bounds(ends)).items():
        at = max(bound.start, ends[partition])
        while at < bound.stable:
            wanted = {partition: at}
            answer = await log.fetch(wanted, limit=ONE_BATCH, isolation=Isolation.COMMITTED)
            if any(len(each.data) for each in answer):
                count += bound.stable - at
                break
            at = max((each.next_offset for each in answer), default=bound.stable)
    return count


async def find_cut_point(
    log: Log,
    pipeline: str,
    as_of: AsOf,
    partitions: Collection[TopicPartition],
    *,
    is_recent: bool = False,
) -> CutPoint:
    """Returns the offsets of a moment. Raises PositionLost with the oldest known moment if the log
    does not reach it."""
    history = CommitIndex(log, pipeline)
    if isinstance(as_of, OffsetsAsOf):
        ends = given_offsets(as_of, await log.bounds(partitions))
    else:
        ends = await history.ends(as_of, partitions, is_recent=is_recent)
    cut_point = CutPoint(ends, str(as_of))
    await check_exact(log, pipeline, cut_point, is_recent=is_recent)
    if not is_recent:
        await _check_not_mixed(log, pipeline, cut_point)
    return cut_point


async def parse_cut_point(
    log: Log, pipeline: str, text: str, partitions: Collection[TopicPartition], *, now_ms: int
) -> CutPoint:
    """Returns the moment of `latest`, or of a text for `parse_as_of`."""
    if text == LATEST:
        return await newest_cut_point(log, partitions)
    return await find_cut_point(log, pipeline, parse_as_of(text, now_ms=now_ms), partitions)


async def begun_at(
    log: Log,
    pipeline: str,
    text: str,
    partitions: Collection[TopicPartition],
    *,
    now_ms: int,
    note: Callable[[str], None],
) -> Ends:
    """Returns the begin of a history. Older values that compaction has removed are no error but are
    reported, because every later state is there."""
    bounds = await log.bounds(partitions)
    if text == EARLIEST:
        start: Ends = {part: bound.start for part, bound in bounds.items()}
    else:
        as_of = parse_as_of(text, now_ms=now_ms)
        start = (
            given_offsets(as_of, bounds)
            if isinstance(as_of, OffsetsAsOf)
            else await CommitIndex(log, pipeline).begins(as_of, partitions)
        )
    if holes := [part for part, at in start.items() if at < bounds[part].cleaned_to]:
        to = bounds[holes[0]].cleaned_to
        note(f"compaction has removed older values of changed keys, up to offset {to}")
    return start


def check_order(start: Ends, end: Ends) -> None:
    """Raises ConfigError if a range ends before it begins."""
    lengths = [to - start[partition] for partition, to in end.items()]
    if min(lengths, default=0) < 0 and max(lengths, default=0) <= 0:
        raise ConfigError(
            "the end of the range is before its beginning",
            start=_describe(start),
            end=_describe(end),
            hint="choose an earlier begin or a later end",
        )


def _describe(ends: Ends) -> str:
    return ",".join(f"{part.partition}:{at}" for part, at in sorted(ends.items()))


async def check_exact(
    log: Log, pipeline: str, cut_point: CutPoint, *, is_recent: bool = False
) -> None:
    """Raises if compaction has passed the moment.

    It is called before and after a read, because compaction goes on meanwhile. It does not reach
    very recent moments: our topics do not permit that.
    """
    bounds = await log.bounds(cut_point.ends)
    marks = await carried_marks(log, pipeline, cut_point.ends)
    for partition, end in cut_point.ends.items():
        bound = bounds[partition]
        if bound.start > 0:
            raise PositionLost(
                "the beginning of the topic is gone, so its past states are unknown",
                hint="use compacted topics, or topics with unlimited retention, which have whole "
                "tables",
                topic=partition.topic,
                partition=partition.partition,
                log_start=bound.start,
            )
        if bound.cleaned_to < 0 and end < bound.stable and not is_recent:
            raise PositionLost(
                "the log does not report compaction, so its past states are unknown",
                hint="use Headwater's own log, which keeps every state within log.history",
                topic=partition.topic,
                partition=partition.partition,
            )
        if end < marks.get(partition, 0):
            raise PositionLost(
                "the point in time is before the topic's present generation",
                hint="choose a point in time after `run --migrate`",
                asked=cut_point.meant,
                topic=partition.topic,
                partition=partition.partition,
            )
        if end < bound.cleaned_to:
            raise PositionLost(
                "compaction has passed this point in time: its state is gone",
                hint=f"the oldest possible is {await CommitIndex(log, pipeline).oldest(bounds)}",
                asked=cut_point.meant,
                topic=partition.topic,
                partition=partition.partition,
                offset=end,
                cleaned_to=bound.cleaned_to,
            )


async def _check_not_mixed(log: Log, pipeline: str, cut_point: CutPoint) -> None:
    """Raises if a table was being read again at the moment: the log then has old and new rows."""
    positions = await load_positions(log, pipeline)
    for topic in sorted({part.topic for part in cut_point.ends}):
        ends = {part.partition: end for part, end in cut_point.ends.items() if part.topic == topic}
        for mixed in mixed_in(positions, await log.topic_id(topic)):
            if mixed.has(ends):
                before = ",".join(f"{part}:{mixed.since.get(part, 0)}" for part in ends)
                behind = ",".join(f"{part}:{mixed.until[part]}" for part in mixed.until)
                raise PositionLost(
                    "the table was being read again at this point in time, so its state was mixed",
                    hint=f"the last state before it is at offset {before}"
                    + (f", the first behind {behind}" if behind else ""),
                    asked=cut_point.meant,
                    topic=topic,
                )


def given_offsets(
    as_of: OffsetsAsOf,
    bounds: Mapping[TopicPartition, Bounds],
    *,
    has_open: bool = False,
    **facts: str,
) -> dict[TopicPartition, int]:
    """Returns the offsets of these partitions, which are those of one topic. Raises ConfigError if
    one is missing or not in the log; `has_open`: records of open transactions count."""
    topics = {partition.topic for partition in bounds}
    by_number = {partition.partition: partition for partition in bounds}
    given = dict(as_of.offsets)
    if -1 in given and len(by_number) == 1:
        given = {next(iter(by_number)): given[-1]}
    if len(topics) > 1 or given.keys() != by_number.keys():
        raise ConfigError(
            "the offsets do not name every partition of one topic",
            hint="write them as 0:42,1:7, or give a time, which applies to all partitions",
            topics=sorted(topics),
            partitions=len(bounds),
            **facts,
        )
    offsets = {by_number[number]: offset for number, offset in given.items()}
    for partition, offset in offsets.items():
        start = bounds[partition].start
        end = bounds[partition].end if has_open else bounds[partition].stable
        if not start <= offset <= end:
            raise ConfigError(
                "the log does not have this offset",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                start=start,
                end=end,
                **facts,
            )
    return offsets


LOOKED_AT = 20_000
"""Number of the newest commits whose ends are known; older ones are not searched."""


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """The source position of a partition below an offset."""

    committed_ms: int
    positions: Positions


async def commits_below(
    log: Log, pipeline: str, offsets: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, ReportedOffsets]:
    """Returns for each partition, in commit order, the last commit completely below the offset;
    none if the log has none."""
    found: dict[TopicPartition, ReportedOffsets] = {}
    positions: dict[str, str] = {}
    async for commit in CommitIndex(log, pipeline).newest(LOOKED_AT):
        positions |= commit.positions
        for partition, offset_range in commit.touched.items():
            if partition in offsets and offset_range.end <= offsets[partition]:
                found.pop(partition, None)
                found[partition] = ReportedOffsets(commit.committed_ms, dict(positions))
    return found
