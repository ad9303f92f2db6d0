"""Source to log: the whole write path of a pipeline, in one loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from connectors.source import Source
from core_log.batch import Batch
from core_log.changes import ChangeBatch, TableChanges
from core_log.client.together import together
from core_log.clock import Clock
from core_log.log import Log, TopicPartition, Transaction
from pipelines.journal.commits import Commit, Stretch, commits_home, encode_commit
from pipelines.journal.generations import Generations, source_parts
from pipelines.journal.notices import NoticeTopics
from pipelines.journal.positions import encode_positions, load_positions, positions_home
from pipelines.letters.letters import encode_rejects
from pipelines.loops.encoding import Encoder, Portion, begun_early
from pipelines.loops.foreseeing import Displaced, Foresight, Touched, stretch_of
from pipelines.loops.read_ahead import ReadAhead, read_ahead
from pipelines.loops.relaying import Controls, relaying
from pipelines.loops.spacing import Spacing
from pipelines.reports import Moved, Report, Reporter, SetAside, State, StateChanged, Stood

UNIT = "source"
HELD_MS_MAX = 50
"""How long a transaction of the log stays open for what is there already, when more always is:
nobody reads a change before its transaction ends."""
LANDING_BYTES_MAX = 1 << 20
"""Appends go out while this much is on its way: whoever waits for each answer stands still for as
long as the log, which shares the processors with us, needs to get its turn."""
KEPT_BYTES_MAX = 1 << 20
"""Of a transaction of the log: more than this is not kept for a second attempt."""


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """When a transaction of the log ends, as far as the source lets it."""

    batch_wait_ms: int
    """The least time between two commits, on average; the first change after quiet goes at once."""
    transaction_bytes_max: int
    """Commit without waiting once this much has been appended."""


def writer_name(pipeline: str) -> str:
    return f"headwater.{pipeline}"


async def ingest(
    pipeline: str,
    source: Source,
    log: Log,
    *,
    new_encoder: Callable[[Generations], Encoder],
    limits: IngestLimits,
    clock: Clock,
    report: Reporter,
    controls: Controls = tuple,
) -> None:
    """Copies changes until the source ends. Data and position commit in one transaction, so that
    a crash at any line repeats nothing: the next run resumes from the last committed position.

    The writer is opened before the position is read: that fences whoever could still move it.
    """
    writer = await log.writer(writer_name(pipeline))
    positions = await load_positions(log, pipeline)
    resume_from = source_parts(positions)
    report(Stood(pipeline, UNIT, resume_from))
    report(StateChanged(pipeline, UNIT, "", State.RUNNING))
    encoder, spacing = new_encoder(Generations.of(positions)), Spacing(limits.batch_wait_ms)
    notices, topic_ids = NoticeTopics(log, pipeline), TopicIds(log)
    async with (
        aclosing(encoder),
        read_ahead(begun_early(source.changes(resume_from), encoder, clock)) as batches,
        relaying(source, controls, resume_from),
    ):
        begun = partial(
            _Filling, pipeline, encoder, notices, clock, limits, spacing, topic_ids, Foresight()
        )
        while (first := await batches.next()) is not None:
            filling = begun()
            try:
                async with writer.transaction() as transaction, filling:
                    batch: ChangeBatch | None = first
                    while batch is not None:
                        await filling.append(transaction, batch)
                        batch = await filling.following(batches)
                    spacing.begun(clock.monotonic_ms())
                    await filling.close(transaction)
            except Displaced:
                again, filling = filling.batches, begun()
                async with writer.transaction() as transaction, filling:
                    for batch in again:
                        await filling.append(transaction, batch)
                    await filling.close(transaction)
            filling.foresight.committed(filling.touched)
            await source.acknowledge(filling.positions)
            for each in filling.told():
                report(each)


class TopicIds:
    """Asked once for each topic: whoever makes one anew under a running source is told apart from
    it by the next run."""

    def __init__(self, log: Log) -> None:
        self._log, self._known = log, dict[str, str]()

    async def of(self, topics: Collection[str]) -> dict[str, str]:
        for topic in topics:
            if topic not in self._known:
                self._known[topic] = await self._log.topic_id(topic)
        return {topic: self._known[topic] for topic in topics}


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    bytes: int = 0
    committed_ms: int = 0


class _Landing(NamedTuple):
    """An append of data or of a schema while it is under way."""

    portion: Portion
    appended: asyncio.Future[int]

    @property
    def size(self) -> int:
        return len(self.portion.batch.data)


@dataclass(slots=True)
class _Filling:
    """One transaction of the log while it fills; nothing of it outlives an abort."""

    pipeline: str
    encoder: Encoder
    notices: NoticeTopics
    clock: Clock
    limits: IngestLimits
    spacing: Spacing
    topic_ids: "TopicIds"
    foresight: Foresight
    positions: dict[str, str] = field(default_factory=dict)
    touched: dict[TopicPartition, Stretch] = field(default_factory=dict)
    tallies: dict[str, _Tally] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)
    set_aside: list[SetAside] = field(default_factory=list)
    is_at_boundary: bool = False
    bytes: int = 0
    batches: list[ChangeBatch] = field(default_factory=list)
    """What it is made of, as long as that is little."""
    opened_ms: int = field(init=False)
    _kept_bytes: int = field(default=0, init=False)
    _landings: deque[_Landing] = field(default_factory=deque, init=False)
    """The last appends, so that the next can be made, and follow them, meanwhile."""

    def __post_init__(self) -> None:
        self.opened_ms = self.clock.monotonic_ms()

    async def __aenter__(self) -> None:
        """What is under way ends before the transaction does, however that ends."""

    async def __aexit__(self, *failure: object) -> None:
        left = [each.appended for each in self._landings]
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left)
        for each in left:
            if not each.cancelled():
                each.exception()

    async def append(self, transaction: Transaction, batch: ChangeBatch) -> None:
        self._keep(batch)
        for changes in batch.tables:
            if len(changes):
                await self._append_table(transaction, changes)
        rejects = [*batch.rejects, *self.encoder.rejects]
        self.encoder.rejects.clear()
        if rejects:
            for partition, encoded in encode_rejects(
                self.pipeline, rejects, now_ms=self.clock.now_ms()
            ):
                await transaction.append(partition, encoded)
            self.set_aside += [
                SetAside(self.pipeline, UNIT, str(reject.table), 1, reject.problem)
                for reject in rejects
            ]
        for each in batch.notices:
            async for partition, encoded in self.notices.encode(each, now_ms=self.clock.now_ms()):
                await transaction.append(partition, encoded)
        self.positions |= batch.positions
        self.is_at_boundary = bool(batch.positions)

    async def following(self, batches: ReadAhead) -> ChangeBatch | None:
        """What else belongs into this transaction: the rest of the source's own one without
        question, what comes before `batch_wait` lets the next commit go, and for a moment what is
        there already."""
        if not self.is_at_boundary:
            batch = await batches.next()
            assert batch is not None, "a source ends between its transactions"
            return batch
        if self.bytes >= self.limits.transaction_bytes_max:
            return None
        now_ms = self.clock.monotonic_ms()
        left_ms = self.spacing.left_ms(now_ms)
        if left_ms <= 0 and now_ms >= self.opened_ms + HELD_MS_MAX:
            return None
        return await batches.next_within(left_ms)

    def _keep(self, batch: ChangeBatch) -> None:
        if self._kept_bytes >= KEPT_BYTES_MAX:
            return
        self._kept_bytes += sum(changes.rows.nbytes for changes in batch.tables)
        self._kept_bytes += sum(each.keys.nbytes + each.values.nbytes for each in batch.notices)
        if batch.rejects or self._kept_bytes >= KEPT_BYTES_MAX:  # rejects are of any size
            self._keep_nothing()
        else:
            self.batches.append(batch)

    def _keep_nothing(self) -> None:
        """It is written once, and so its boundary waits until it is known where."""
        self._kept_bytes = KEPT_BYTES_MAX
        self.batches.clear()

    async def close(self, transaction: Transaction) -> None:
        """Position and boundary come last, so that nobody waits for them behind a long
        transaction. Only the boundary says where the data is. It waits until that is there, or is
        written by where it will be, if it can be written anew should that turn out to be wrong."""
        under_way = [each.portion for each in self._landings]
        foreseen = self.foresight.of(self.touched, under_way) if self.batches else None
        boundary = [] if foreseen is None else await self._boundary(foreseen)
        home, now_ms = positions_home(self.pipeline), self.clock.now_ms()
        positions = encode_positions(self.pipeline, self.positions, now_ms=now_ms)
        appends = [(home, each) for each in positions] + boundary
        await together([self._landed(), *(_append(transaction, *each) for each in appends)])
        if foreseen is not None:
            self.foresight.check(foreseen, self.touched)
            return
        for each in await self._boundary(self.touched):
            await _append(transaction, *each)

    async def _boundary(self, touched: Touched) -> list[tuple[TopicPartition, Batch]]:
        commit = Commit(
            pipeline=self.pipeline,
            committed_ms=max((each.committed_ms for each in self.tallies.values()), default=0),
            positions=self.positions,
            touched=touched,
            topic_ids=await self.topic_ids.of({each.topic for each in touched}),
            truncated=frozenset(self.truncated),
        )
        batches = encode_commit(commit, now_ms=self.clock.now_ms())
        return [(commits_home(self.pipeline), each) for each in batches]

    def told(self) -> list[Report]:
        now_ms = self.clock.now_ms()
        moved = [
            Moved(self.pipeline, UNIT, table, each.rows, each.bytes, each.committed_ms, now_ms)
            for table, each in self.tallies.items()
        ]
        return [*moved, *self.set_aside, Stood(self.pipeline, UNIT, self.positions)]

    async def _append_table(self, transaction: Transaction, changes: TableChanges) -> None:
        tally = self.tallies.setdefault(str(changes.schema.table), _Tally())
        tally.rows += len(changes)
        tally.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        async for portions in self.encoder.encode(
            changes, positions=self.positions, now_ms=self.clock.now_ms()
        ):
            size = sum(len(portion.batch.data) for portion in portions)
            under_way = [each.portion for each in self._landings]
            is_data = all(each.is_data for each in (*under_way, *portions))
            await self._landed(left_max=LANDING_BYTES_MAX - size if is_data else 0)
            for portion in portions:
                appending = transaction.append(portion.partition, portion.batch)
                self._landings.append(_Landing(portion, asyncio.ensure_future(appending)))
                if not portion.is_data:
                    self._keep_nothing()  # the encoder believes by now that the log has it
                else:
                    if changes.is_truncate:
                        self.truncated.add(portion.partition.topic)
                    tally.bytes += len(portion.batch.data)
                    self.bytes += len(portion.batch.data)

    async def _landed(self, *, left_max: int = 0) -> None:
        """Until no more bytes than these are under way."""
        while self._landings and sum(each.size for each in self._landings) > max(0, left_max):
            landing = self._landings[0]
            portion, first = landing.portion, await landing.appended
            self._landings.popleft()
            if portion.is_data:
                stretch = stretch_of(portion.batch.record_count, landing.size, first)
                earlier = self.touched.get(portion.partition)
                self.touched[portion.partition] = earlier.joined(stretch) if earlier else stretch


async def _append(transaction: Transaction, home: TopicPartition, batch: Batch) -> None:
    await transaction.append(home, batch)
