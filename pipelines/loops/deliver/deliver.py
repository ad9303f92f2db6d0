"""Log to sink: the whole read path of a pipeline, in one loop."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import (
    Cure,
    Fenced,
    HeadwaterError,
    LogRejected,
    PositionLost,
    RebuildNeeded,
    RecordsRejected,
    SinkUnavailable,
    TableFailed,
)
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.journal.generations import load_generations
from headwater.pipelines.journal.internal_topics import COMMITS
from headwater.pipelines.journal.schemas import every_topic_of
from headwater.pipelines.loops.deliver.dead_letters import RejectedRecords
from headwater.pipelines.loops.deliver.group_offsets import (
    GroupOffsetReporter,
    group_offsets,
    shield,
)
from headwater.pipelines.loops.deliver.quarantine import Quarantine, error_text
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.loops.deliver.slicer import Slicer
from headwater.pipelines.reports import (
    OffsetsApplied,
    Reporter,
    RowsMoved,
    SliceApplied,
    StateChanged,
    TableKnown,
    TaskState,
)
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Sink, Slice


class RebuildWanted(NamedTuple):
    table: str
    refusal: str
    """Why the table cannot take the schema in place."""


class RebuildsNeeded:
    """Tables reported by the sink's loop, for the process that rebuilds them."""

    def __init__(self) -> None:
        self._tables: asyncio.Queue[RebuildWanted] = asyncio.Queue()
        self._known: set[str] = set()

    def put(self, table: str, refusal: str) -> None:
        """Adds a table once until its rebuild ends: several of its topics may be refused."""
        if table not in self._known:
            self._known.add(table)
            self._tables.put_nowait(RebuildWanted(table, refusal))

    async def next(self) -> RebuildWanted:
        return await self._tables.get()

    def end(self, table: str) -> None:
        """Ends the rebuild of the table that was taken last."""
        self._known.remove(table)
        self._tables.task_done()

    async def wait_all_ended(self) -> None:
        """Waits until no table is being rebuilt or waits for that."""
        await self._tables.join()


logger = logging.getLogger(__name__)

PAUSE_POLL_S = 0.5
OTHER_KEY = "the table has another key at its source and is read again"


@dataclass(slots=True)
class Delivery:
    pipeline: str
    task: str
    sink: Sink
    log: Log
    slicer: Slicer
    reader: SliceReader
    rejected: RejectedRecords
    topic_of: Callable[[TableId], str]
    """Returns the first topic of a table."""
    desired: Callable[[], DesiredTaskState]
    isolates_tables: bool
    keeps_group: bool
    """Whether the consumer group's offsets are stored for Kafka's tools."""
    clock: Clock
    report: Reporter
    is_traced: bool = False
    """Whether each slice is reported by itself, for traces."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    paused: frozenset[str] = frozenset()
    """Tables that were paused at the last check."""
    keeps_rows: Callable[[TableSchema], bool] = lambda _: False
    """Whether a table of the target can be rebuilt, and keeps rows rather than their history."""
    rebuilds: RebuildsNeeded = field(default_factory=RebuildsNeeded)
    reported_lost: set[str] = field(default_factory=set)
    """Topics already reported as lost."""

    @property
    def group(self) -> str:
        """Consumer group whose offsets show the sink's progress to Kafka's tools."""
        return f"headwater.{self.pipeline}.{self.task}"


async def deliver(delivery: Delivery, *, until_end: bool = False) -> None:
    """Applies slices until cancelled, or until the log's present end.

    The target's own offsets decide where to continue. The log's group offsets are for dashboards,
    and for targets that cannot store offsets.
    """
    slicer = delivery.slicer
    remembered = await _read_applied_offsets(delivery)
    await slicer.start(await _load_group_offsets(delivery) if remembered is None else remembered)
    if until_end:
        slicer.hurry()
    state = None
    async with group_offsets(delivery.log, delivery.group) as offsets:
        while True:
            wanted = TaskState.PAUSED if delivery.desired().is_paused else TaskState.RUNNING
            if wanted is not state:
                state = wanted
                _report_state(delivery, "", state)
            if state is TaskState.PAUSED:
                await asyncio.sleep(PAUSE_POLL_S)
                continue
            _report_lost(delivery)
            stopped = _find_stopped(delivery)
            if until_end and slicer.is_caught_up(stopped):
                return
            part = await slicer.next(stopped)
            if part is not None:
                await shield(_deliver_one(delivery, part, offsets, waits=remembered is None))


async def _deliver_one(
    delivery: Delivery, part: Slice, offsets: GroupOffsetReporter, *, waits: bool
) -> None:
    """`waits` until the group offsets are stored, for targets that do not store offsets."""
    begun_ms = delivery.clock.now_ms()
    kept = await _without_replaced(delivery, part)
    applied = None if kept is None else await _apply(delivery, kept)
    if applied is None:
        return
    delivery.slicer.advance(applied)
    for each in applied.end:
        delivery.quarantine.note_progress(each.topic)
    if delivery.keeps_group:
        await offsets.report({each: end.next_offset for each, end in applied.end.items()})
        if waits:
            await offsets.wait_settled()
    _report_applied(delivery, applied, begun_ms)


async def _read_applied_offsets(delivery: Delivery) -> AppliedOffsets | None:
    """Returns the target's offsets; None if it does not store any."""
    stored = await every_topic_of(delivery.log, delivery.pipeline)
    generations = await load_generations(delivery.log, delivery.pipeline, stored)
    for topic, schema in stored.items():
        if topic not in generations.hidden:
            table = str(schema.schema.table)
            delivery.report(TableKnown(delivery.pipeline, delivery.task, table))
    topics = [*dict.fromkeys([*stored, *generations.former, COMMITS])]
    while True:
        try:
            return await delivery.sink.committed_offsets(topics)
        except HeadwaterError as error:
            topic = str(error.facts.get("topic", ""))
            is_ours = topic in topics and delivery.isolates_tables
            if not is_ours or error.cure is Cure.TIME or isinstance(error, Fenced):
                raise
            topics.remove(topic)
            table = str(stored[topic].schema.table) if topic in stored else topic
            _hold(delivery, topic, table, error, is_unopened=True)


async def _load_group_offsets(delivery: Delivery) -> AppliedOffsets:
    offsets = await delivery.log.committed_offsets(delivery.group)
    ids = {each.topic: await _id_of(delivery.log, each.topic) for each in offsets}
    return {each: AppliedOffset(ids[each.topic], offset) for each, offset in offsets.items()}


async def _id_of(log: Log, topic: str) -> str:
    """Returns the topic's id; a deleted topic has nothing to read."""
    try:
        return await log.topic_id(topic)
    except LogRejected:
        return ""


def _find_stopped(delivery: Delivery) -> frozenset[str]:
    """Returns topics that are paused or quarantined now."""
    desired = delivery.desired()
    lifted = delivery.quarantine.lift(desired, now_ms=delivery.clock.now_ms())
    for topic, each in lifted.items():
        logger.info("%s continues with %s", delivery.task, topic)
        _report_state(delivery, each.table, TaskState.RUNNING)
    if any(each.needs_reopening for each in lifted.values()):
        raise SinkUnavailable("tables that could not be opened are tried again")
    for table in sorted(desired.paused_tables ^ delivery.paused):
        is_paused = table in desired.paused_tables
        _report_state(delivery, table, TaskState.PAUSED if is_paused else TaskState.RUNNING)
    delivery.paused = desired.paused_tables
    paused = {topic for table in desired.paused_tables for topic in _topics_of(delivery, table)}
    return delivery.quarantine.topics | paused


def _topics_of(delivery: Delivery, table: str) -> frozenset[str]:
    """Returns the topics of a table by its whole name, which has more than one dot if the name of
    its schema or its own has one."""
    if known := delivery.slicer.topics_of(table):
        return known
    namespace, _, name = table.rpartition(".")
    return delivery.slicer.generations_of(delivery.topic_of(TableId(namespace, name)))


async def _apply(delivery: Delivery, part: Slice) -> Slice | None:
    """Returns the part of the slice that was applied, without rejected records and quarantined
    tables; None if nothing was left."""
    part = replace(part, heard=delivery.reader.hear)
    while True:
        delivery.reader.begin_counts()
        try:
            async with aclosing(delivery.reader):
                await delivery.sink.apply(part)
        except RecordsRejected as error:
            if await delivery.rejected.take(error, table=_table_of(delivery, error.topic)):
                continue
            part = _without_culprits(delivery, part, error, {error.topic})
        except HeadwaterError as error:
            if error.cure is Cure.TIME or isinstance(error, Fenced):
                raise
            if isinstance(error, PositionLost):
                part = _without_lost(delivery, part, error)
            else:
                culprits = await _culprits(delivery, part, error)
                part = _without_culprits(delivery, part, error, culprits)
        else:
            return part
        if all(each.topic == COMMITS for each in part.end):
            return None


async def _without_replaced(delivery: Delivery, part: Slice) -> Slice | None:
    """Returns the slice without tables that get another key here: every row of the target would
    change."""
    found = delivery.slicer.find_replaced(part)
    if not found:
        return part
    stored = await every_topic_of(delivery.log, delivery.pipeline)
    found = {each for each in found if delivery.keeps_rows(stored[each].schema)}
    if not found:
        return part
    error = RebuildNeeded(OTHER_KEY)
    part = _without_culprits(delivery, part, error, found)
    return None if all(each.topic == COMMITS for each in part.end) else part


def _report_lost(delivery: Delivery) -> None:
    """Reports tables that the sink skips from now on.

    A resume does not cure them: only another state of the target at the next start does, for
    example after a rebuild.
    """
    for topic, error in delivery.slicer.lost.items():
        if not delivery.isolates_tables:
            raise error
        if topic not in delivery.reported_lost:
            delivery.reported_lost.add(topic)
            table = _table_of(delivery, topic)
            text = error_text(error, delivery.desired().pipeline, table)
            logger.error("%s: %s is quarantined: %s", delivery.task, table, text)
            _report_state(delivery, table, TaskState.QUARANTINED, text)


def _without_lost(delivery: Delivery, part: Slice, error: PositionLost) -> Slice:
    topic = str(error.facts.get("topic", ""))
    if topic not in {each.topic for each in part.end}:
        raise error
    delivery.slicer.lose(topic, error)
    _report_lost(delivery)
    return _without(part, {topic})


async def _culprits(delivery: Delivery, part: Slice, error: HeadwaterError) -> set[str]:
    """Returns the topics of the table that an error names."""
    if "topic" in error.facts:
        return {str(error.facts["topic"])}
    named = str(error.facts.get("table", ""))
    found = {
        topic
        for table, topics in delivery.reader.feeds.items()
        if named in (str(table), table.name)
        for topic in topics
    } | {count.topic for table, count in delivery.reader.counts.items() if named == str(table)}
    if part.split_reader is None or not named:
        return found
    # perhaps read in another process
    for topic in sorted({each.topic for each in part.end} - {COMMITS} - found):
        tables = {schema.table for schema in await part.split_reader.schemas(topic)}
        if any(named in (str(table), table.name) for table in tables):
            found.add(topic)
    return found


def _without_culprits(
    delivery: Delivery, part: Slice, error: HeadwaterError, topics: set[str]
) -> Slice:
    """Returns the slice without the failed table, if it is one table and may fail alone."""
    topics &= {each.topic for each in part.end}
    if not topics or not delivery.isolates_tables:
        raise error
    for topic in topics:
        _hold(delivery, topic, _table_of(delivery, topic), error)
    return _without(part, topics)


def _hold(
    delivery: Delivery, topic: str, table: str, error: HeadwaterError, *, is_unopened: bool = False
) -> None:
    reason = delivery.quarantine.put(
        topic,
        table=table,
        error=error,
        desired=delivery.desired(),
        now_ms=delivery.clock.now_ms(),
        needs_reopening=is_unopened,
        is_rebuilt=isinstance(error, RebuildNeeded),
    )
    if isinstance(error, RebuildNeeded):
        delivery.rebuilds.put(table, reason)
        _report_state(
            delivery, table, TaskState.REBUILDING, f"rebuilt from the log: {error.statement}"
        )
        return
    bug = error.__cause__ if isinstance(error, TableFailed) else None
    logger.error("%s: %s is quarantined: %s", delivery.task, table, reason, exc_info=bug)
    _report_state(delivery, table, TaskState.QUARANTINED, reason)


def _without(part: Slice, topics: set[str]) -> Slice:
    return replace(
        part,
        start={each: applied for each, applied in part.start.items() if each.topic not in topics},
        end={each: applied for each, applied in part.end.items() if each.topic not in topics},
        is_whole=part.is_whole and topics <= part.left_out,
    )


def _table_of(delivery: Delivery, topic: str) -> str:
    """Returns the source's name of the table, if known."""
    counts = delivery.reader.counts.items()
    found = (str(table) for table, count in counts if count.topic == topic)
    return next(found, delivery.slicer.table_of(topic))


def _report_applied(delivery: Delivery, part: Slice, begun_ms: int) -> None:
    now_ms = delivery.clock.now_ms()
    for table, count in delivery.reader.counts.items():
        delivery.report(
            RowsMoved(
                delivery.pipeline,
                delivery.task,
                str(table),
                count.rows,
                count.bytes,
                count.committed_ms,
                now_ms,
            )
        )
    offsets = {
        f"{topic}-{number}": str(applied.next_offset)
        for (topic, number), applied in part.end.items()
    }
    delivery.report(OffsetsApplied(delivery.pipeline, delivery.task, offsets))
    counts = delivery.reader.counts
    if delivery.is_traced and counts:
        delivery.report(
            SliceApplied(
                delivery.pipeline,
                delivery.task,
                part.oldest_ms or min(each.committed_ms for each in counts.values()),
                begun_ms,
                now_ms,
                sum(each.rows for each in counts.values()),
                sum(each.bytes for each in counts.values()),
                tuple(sorted(map(str, counts))),
                part.cut.offset if part.cut else None,
            )
        )


def _report_state(delivery: Delivery, table: str, state: TaskState, reason: str = "") -> None:
    delivery.report(StateChanged(delivery.pipeline, delivery.task, table, state, reason))
