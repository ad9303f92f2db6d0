"""Where in the log a moment of the past lies: per partition the offset below which it is told."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.errors import ConfigError, PositionLost
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Bounds, Log, TopicPartition
from headwater.pipelines.journal.generations import carried_marks
from headwater.pipelines.journal.positions import load_positions
from headwater.pipelines.journal.replacements import mixed_in
from headwater.pipelines.terminal.starting_points import EARLIEST, LATEST
from headwater.pipelines.time_travel.history.as_of import AsOf, OffsetsAsOf, parse_as_of
from headwater.pipelines.time_travel.history.commit_index import CommitIndex

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A state of some topics: what stands below `ends`."""

    ends: Ends
    meant: str
    """In the words of whoever asked."""


async def newest_moment(log: Log, partitions: Collection[TopicPartition]) -> CutPoint:
    """Everything that is decided now."""
    bounds = await log.bounds(partitions)
    return CutPoint({part: bounds[part].stable for part in partitions}, "now")


async def moment_of(
    log: Log,
    pipeline: str,
    as_of: AsOf,
    partitions: Collection[TopicPartition],
    *,
    is_recent: bool = False,
) -> CutPoint:
    """Raises PositionLost, with the oldest moment there is, where the log does not know it."""
    history = CommitIndex(log, pipeline)
    if isinstance(as_of, OffsetsAsOf):
        ends = _parse_given(as_of, partitions, await log.bounds(partitions))
    else:
        ends = await history.ends(as_of, partitions, is_recent=is_recent)
    moment = CutPoint(ends, str(as_of))
    await check_exact(log, pipeline, moment, is_recent=is_recent)
    if not is_recent:
        await _check_not_mixed(log, pipeline, moment)
    return moment


async def moment_called(
    log: Log, pipeline: str, text: str, partitions: Collection[TopicPartition], *, now_ms: int
) -> CutPoint:
    """`latest`, or a moment as `parse_as_of` reads it."""
    if text == LATEST:
        return await newest_moment(log, partitions)
    return await moment_of(log, pipeline, parse_as_of(text, now_ms=now_ms), partitions)


async def begun_at(
    log: Log,
    pipeline: str,
    text: str,
    partitions: Collection[TopicPartition],
    *,
    now_ms: int,
    tell: Callable[[str], None],
) -> Ends:
    """Where a history begins: what compaction has taken from behind it is no reason to refuse,
    since every later state is there, but has to be known."""
    bounds = await log.bounds(partitions)
    if text == EARLIEST:
        start: Ends = {part: held.start for part, held in bounds.items()}
    else:
        as_of = parse_as_of(text, now_ms=now_ms)
        start = (
            _parse_given(as_of, partitions, bounds)
            if isinstance(as_of, OffsetsAsOf)
            else await CommitIndex(log, pipeline).begins(as_of, partitions)
        )
    if holes := [part for part, at in start.items() if at < bounds[part].cleaned_to]:
        to = bounds[holes[0]].cleaned_to
        tell(f"compaction has taken older values of what changed again, up to offset {to}")
    return start


def check_order(start: Ends, end: Ends) -> None:
    """Raises ConfigError where a stretch would end before it begins: nobody means nothing."""
    lengths = [to - start[partition] for partition, to in end.items()]
    if min(lengths, default=0) < 0 and max(lengths, default=0) <= 0:
        raise ConfigError(
            "that ends before it begins",
            start=_describe(start),
            end=_describe(end),
            hint="an earlier moment to begin with, or a later one to end with",
        )


def _describe(ends: Ends) -> str:
    return ",".join(f"{part.partition}:{at}" for part, at in sorted(ends.items()))


async def check_exact(
    log: Log, pipeline: str, moment: CutPoint, *, is_recent: bool = False
) -> None:
    """Once before a moment is read, and once after, since compaction goes on meanwhile. A recent
    moment is one that somebody has just come to: our topics let nobody compact what is as new."""
    bounds = await log.bounds(moment.ends)
    marks = await carried_marks(log, pipeline, moment.ends)
    for partition, end in moment.ends.items():
        held = bounds[partition]
        if held.start > 0:
            raise PositionLost(
                "the beginning of the topic is gone, so that no state can be told from it",
                hint="only topics that are compacted, or kept for ever, hold whole tables",
                topic=partition.topic,
                partition=partition.partition,
                log_start=held.start,
            )
        if held.cleaned_to < 0 and end < held.stable and not is_recent:
            raise PositionLost(
                "this log does not say what compaction has taken, so that no past state is sure",
                hint="on Headwater's own log every moment within log.history can be told",
                topic=partition.topic,
                partition=partition.partition,
            )
        if end < marks.get(partition, 0):
            raise PositionLost(
                "that moment is before the topic's present generation, and was not carried over",
                hint="every moment since `run --migrate` can be told",
                asked=moment.meant,
                topic=partition.topic,
                partition=partition.partition,
            )
        if end < held.cleaned_to:
            raise PositionLost(
                "compaction has passed that moment: what was true then can no longer be told",
                hint=f"the oldest possible is {await CommitIndex(log, pipeline).oldest(bounds)}",
                asked=moment.meant,
                topic=partition.topic,
                partition=partition.partition,
                offset=end,
                cleaned_to=held.cleaned_to,
            )


async def _check_not_mixed(log: Log, pipeline: str, moment: CutPoint) -> None:
    """While a table is read again as a whole the log has some of its rows as they were, and others
    as they are."""
    positions = await load_positions(log, pipeline)
    for topic in sorted({part.topic for part in moment.ends}):
        ends = {part.partition: end for part, end in moment.ends.items() if part.topic == topic}
        for mixed in mixed_in(positions, await log.topic_id(topic)):
            if mixed.has(ends):
                before = ",".join(f"{part}:{mixed.since.get(part, 0)}" for part in ends)
                behind = ",".join(f"{part}:{mixed.until[part]}" for part in mixed.until)
                raise PositionLost(
                    "the table was being read again at that moment, for a new form, so that no"
                    " state of then was its source's",
                    hint=f"the last moment before is offset {before}"
                    + (f", the first behind {behind}" if behind else ""),
                    asked=moment.meant,
                    topic=topic,
                )


def _parse_given(
    as_of: OffsetsAsOf,
    partitions: Collection[TopicPartition],
    bounds: Mapping[TopicPartition, Bounds],
) -> dict[TopicPartition, int]:
    topics = {partition.topic for partition in partitions}
    by_number = {partition.partition: partition for partition in partitions}
    given = dict(as_of.offsets)
    if -1 in given and len(by_number) == 1:
        given = {next(iter(by_number)): given[-1]}
    if len(topics) > 1 or given.keys() != by_number.keys():
        raise ConfigError(
            "offsets are needed of every partition, and of one topic",
            hint="write them as 0:42,1:7, or give a time: that is the same moment everywhere",
            topics=sorted(topics),
            partitions=len(partitions),
        )
    ends = {by_number[number]: offset for number, offset in given.items()}
    for partition, offset in ends.items():
        if not bounds[partition].start <= offset <= bounds[partition].stable:
            raise ConfigError(
                "the log does not hold that offset",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                start=bounds[partition].start,
                end=bounds[partition].stable,
            )
    return ends


LOOKED_AT = 20_000
"""Of so many of the newest commits it is known where they end; older ones are not looked for."""


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """What of the source a partition has below an offset."""

    committed_ms: int
    positions: Positions


async def told_below(
    log: Log, pipeline: str, offsets: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, ReportedOffsets]:
    """For each partition, in the order of the commits, the last one that is wholly below the
    offset; nothing where the log remembers none."""
    found: dict[TopicPartition, ReportedOffsets] = {}
    positions: dict[str, str] = {}
    async for commit in CommitIndex(log, pipeline).newest(LOOKED_AT):
        positions |= commit.positions
        for partition, stretch in commit.touched.items():
            if partition in offsets and stretch.end <= offsets[partition]:
                found.pop(partition, None)
                found[partition] = ReportedOffsets(commit.committed_ms, dict(positions))
    return found
