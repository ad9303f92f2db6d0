"""Source to log: the whole write path of a pipeline, in one loop."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from headwater.connectors.source import Source
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch, TableChanges
from headwater.core_log.model.log import Log, TopicPartition, Transaction, Writer
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.dead_letters.dead_letter import encode_rejects
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.journal.commits import Commit, OffsetRange, commits_home, encode_commit
from headwater.pipelines.journal.event_topics import EventTopics
from headwater.pipelines.journal.generations import Generations, source_parts
from headwater.pipelines.journal.positions import encode_positions, load_positions, positions_home
from headwater.pipelines.loops.ingest.commit_rate import CommitRate
from headwater.pipelines.loops.ingest.encoder import Encoder, PartitionBatch, begun_early
from headwater.pipelines.loops.ingest.prefetch import (
    OffsetMispredicted,
    OffsetPrediction,
    Prefetch,
    Touched,
    read_ahead,
    stretch_of,
)
from headwater.pipelines.loops.ingest.replacement import Replacements, ReplacementStates
from headwater.pipelines.loops.ingest.signals import Controls, relaying
from headwater.pipelines.loops.reject_budget import RejectBudget
from headwater.pipelines.reports import (
    DeadLettersAdded,
    OffsetsApplied,
    Report,
    Reporter,
    RowsMoved,
    StateChanged,
    TaskState,
)

SOURCE = "source"
HELD_MS_MAX = 50
"""Longest time that a log transaction stays open if more changes always wait: changes are visible
only after its end."""
TOGETHER_BYTES_MAX = 64 << 10
"""Bytes of data that wait to be sent together with the transaction's next append."""
LANDING_BYTES_MAX = 1 << 20
"""Bytes in flight: appends are sent without waiting for each answer, because the log shares our
processors."""
STOP_AFTER = StopAfter()
KEPT_BYTES_MAX = 1 << 20
"""Bytes of a transaction that are kept for a second attempt; larger ones are not kept."""


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """When a transaction of the log ends, as far as the source permits."""

    batch_wait_ms: int
    """Least time between two commits on average; after quiet the first few are immediate."""
    transaction_bytes_max: int
    """Commits without waiting after this many bytes."""


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
    stop_after: StopAfter = STOP_AFTER,
) -> None:
    """Copies changes until the source ends.

    Data and position commit in one transaction, so a crash repeats nothing: the next run continues
    from the last committed position. The writer is opened before the position is read, which fences
    every other writer of the position.
    """
    writer = await log.writer(writer_name(pipeline))
    positions = await load_positions(log, pipeline)
    resume_from = source_parts(positions)
    report(OffsetsApplied(pipeline, SOURCE, resume_from))
    report(StateChanged(pipeline, SOURCE, "", TaskState.RUNNING))
    encoder, spacing = new_encoder(Generations.of(positions)), CommitRate(limits.batch_wait_ms)
    notices, topic_ids = EventTopics(log, pipeline), TopicIds(log)
    replacements = Replacements.of(pipeline, log, encoder, positions)
    begun = partial(
        _Filling,
        pipeline,
        encoder,
        notices,
        clock,
        limits,
        spacing,
        topic_ids,
        OffsetPrediction(),
        replacements,
    )
    states = ReplacementStates(pipeline, SOURCE, report)
    budget = RejectBudget(pipeline, SOURCE, stop_after)
    states.tell(replacements.stored)
    await _delete_missing(replacements, writer, begun, report)
    states.tell(replacements.stored)
    async with (
        aclosing(encoder),
        read_ahead(begun_early(source.changes(resume_from), encoder, clock)) as batches,
        relaying(source, controls, resume_from),
    ):
        while (first := await batches.next()) is not None:
            filling = begun()
            try:
                async with writer.transaction() as transaction, filling:
                    batch: ChangeBatch | None = first
                    while batch is not None:
                        await filling.append(transaction, batch)
                        batch = await filling.following(batches)
                    spacing.take_token(clock.monotonic_ms())
                    await filling.close(transaction)
            except OffsetMispredicted:
                again, filling = filling.batches, begun()
                filling.keep_nothing()
                async with writer.transaction() as transaction, filling:
                    for batch in again:
                        await filling.append(transaction, batch)
                    await filling.close(transaction)
            filling.foresight.note_commit(filling.touched)
            await source.acknowledge(filling.positions)
            for each in filling.take_reports():
                report(each)
            if (remark := budget.count(filling.rows, filling.rejected)) is not None:
                report(remark)
            states.tell(replacements.stored)
            await _delete_missing(replacements, writer, begun, report)
            states.tell(replacements.stored)


async def _delete_missing(
    replacements: Replacements,
    writer: Writer,
    begun: Callable[[], "_Filling"],
    report: Reporter,
) -> None:
    """Appends the deletes of re-reads whose rows are all in the log, one transaction each."""
    for done in replacements.complete:
        filling = begun()
        async with writer.transaction() as transaction, filling:
            filling.keep_nothing()
            async for deletes in replacements.deletes(done):
                await filling.append_table(transaction, deletes, is_from_log=True)
            await filling.settle(transaction)
            filling.parts |= await replacements.delete_appended(done)
            await filling.close(transaction)
        filling.foresight.note_commit(filling.touched)
        for each in filling.take_reports():
            report(each)


class TopicIds:
    """Topic ids, each asked for once. The next run thereby notices a topic that was recreated under
    a running source."""

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
    """Data or schemas in flight to the log."""

    portions: Sequence[PartitionBatch]
    appended: asyncio.Future[Mapping[TopicPartition, int]]

    @property
    def size(self) -> int:
        return _size_of(self.portions)


@dataclass(slots=True)
class _Filling:
    """One transaction of the log while it fills; an abort discards everything."""

    pipeline: str
    encoder: Encoder
    notices: EventTopics
    clock: Clock
    limits: IngestLimits
    spacing: CommitRate
    topic_ids: "TopicIds"
    foresight: OffsetPrediction
    replacements: Replacements
    positions: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str | None] = field(default_factory=dict)
    """The position parts that are not the source's."""
    touched: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    tallies: dict[str, _Tally] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)
    switched: set[str] = field(default_factory=set)
    set_aside: list[DeadLettersAdded] = field(default_factory=list)
    is_at_boundary: bool = False
    bytes: int = 0
    batches: list[ChangeBatch] = field(default_factory=list)
    """The batches, while they are few."""
    opened_ms: int = field(init=False)
    _kept_bytes: int = field(default=0, init=False)
    _landings: deque[_Landing] = field(default_factory=deque, init=False)
    """The last appends, so that the next is prepared meanwhile and follows them."""
    _held: dict[TopicPartition, PartitionBatch] = field(default_factory=dict, init=False)
    """Batches not yet sent."""

    def __post_init__(self) -> None:
        self.opened_ms = self.clock.monotonic_ms()

    async def __aenter__(self) -> None:
        """Waits for appends in flight before the transaction ends, in every case."""

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
        if batch.replacements:
            self.keep_nothing()
            await self.settle(transaction)
            taken = await self.replacements.take(batch, self.touched, now_ms=self.clock.now_ms())
            self.parts |= taken.parts
            self.switched |= taken.switched
            await self._hold(transaction, taken.schemas)
        for changes in batch.tables:
            if len(changes):
                await self.append_table(transaction, changes)
        self.parts |= self.replacements.end(batch)
        rejects = [*batch.rejects, *self.encoder.rejects]
        self.encoder.rejects.clear()
        if rejects:
            for partition, encoded in encode_rejects(
                self.pipeline, rejects, now_ms=self.clock.now_ms()
            ):
                await transaction.append(partition, encoded)
            self.set_aside += [
                DeadLettersAdded(self.pipeline, SOURCE, str(reject.table), 1, reject.problem)
                for reject in rejects
            ]
        for each in batch.notices:
            async for partition, encoded in self.notices.encode(each, now_ms=self.clock.now_ms()):
                await transaction.append(partition, encoded)
        self.positions |= batch.positions
        self.is_at_boundary = bool(batch.positions)

    async def following(self, batches: Prefetch) -> ChangeBatch | None:
        """Yields more changes for this transaction: the rest of the source's own transaction,
        changes before `batch_wait` permits the next commit, and for a moment those that are
        there."""
        if not self.is_at_boundary:
            batch = await batches.next()
            assert batch is not None, "a source ends between its transactions"
            return batch
        if self.replacements.complete:
            return None  # their deletes precede any change of a later moment
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
        if batch.rejects or self._kept_bytes >= KEPT_BYTES_MAX:  # rejected rows may have any size
            self.keep_nothing()
        else:
            self.batches.append(batch)

    def keep_nothing(self) -> None:
        """Stops keeping batches. The transaction is written once, so its boundary waits for the
        real offsets."""
        self._kept_bytes = KEPT_BYTES_MAX
        self.batches.clear()

    async def close(self, transaction: Transaction) -> None:
        """Ends the transaction: position and boundary are sent last, together with batches not yet
        sent.

        The boundary names the offsets of all batches. It uses predicted offsets only if everything
        can be written again after a misprediction.
        """
        await self._wait_landed()
        touched = self.foresight.of(self.touched, self._held.values()) if self.batches else None
        if touched is None:
            await self._set_out(transaction)
            await self._wait_landed()
            touched = dict(self.touched)
        parts = {**self.positions, **self.parts}
        position = encode_positions(self.pipeline, parts, now_ms=self.clock.now_ms())
        boundary = await self._boundary(touched)
        held = self._let_go()
        last = {each.partition: each.batch for each in held}
        last[positions_home(self.pipeline)] = position
        last[commits_home(self.pipeline)] = boundary
        self._touch(held, await transaction.append_each(last))
        self.foresight.check(touched, self.touched)

    async def settle(self, transaction: Transaction) -> None:
        """Waits until the log has everything so far."""
        await self._set_out(transaction)
        await self._wait_landed()

    async def _boundary(self, touched: Touched) -> Batch:
        commit = Commit(
            pipeline=self.pipeline,
            committed_ms=max((each.committed_ms for each in self.tallies.values()), default=0),
            positions=self.positions,
            touched=touched,
            topic_ids=await self.topic_ids.of({each.topic for each in touched}),
            truncated=frozenset(self.truncated),
            switched=frozenset(self.switched),
        )
        return encode_commit(commit, now_ms=self.clock.now_ms())

    @property
    def rows(self) -> Mapping[str, int]:
        return {table: each.rows for table, each in self.tallies.items()}

    @property
    def rejected(self) -> Mapping[str, int]:
        return Counter(each.table for each in self.set_aside)

    def take_reports(self) -> list[Report]:
        now_ms = self.clock.now_ms()
        moved = [
            RowsMoved(
                self.pipeline, SOURCE, table, each.rows, each.bytes, each.committed_ms, now_ms
            )
            for table, each in self.tallies.items()
        ]
        return [*moved, *self.set_aside, OffsetsApplied(self.pipeline, SOURCE, self.positions)]

    async def append_table(
        self, transaction: Transaction, changes: TableChanges, *, is_from_log: bool = False
    ) -> None:
        tally = self.tallies.setdefault(str(changes.schema.table), _Tally())
        tally.rows += len(changes)
        tally.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        encoded = self.encoder.encode(
            changes,
            now_ms=self.clock.now_ms(),
            is_from_log=is_from_log,
        )
        async with aclosing(encoded) as pieces:
            async for portions in pieces:
                for portion in portions:
                    if not portion.is_data:
                        self.keep_nothing()  # the encoder has already counted it as stored
                        continue
                    if changes.is_truncate:
                        self.truncated.add(portion.partition.topic)
                    tally.bytes += len(portion.batch.data)
                    self.bytes += len(portion.batch.data)
                await self._hold(transaction, portions)

    async def _hold(self, transaction: Transaction, portions: Sequence[PartitionBatch]) -> None:
        """Delays small batches to send them with the next append; nothing passes a schema."""
        for portion in portions:
            size = _size_of([*self._held.values(), portion])
            if portion.partition in self._held or size > TOGETHER_BYTES_MAX:
                await self._set_out(transaction)
            self._held[portion.partition] = portion
            if len(portion.batch.data) > TOGETHER_BYTES_MAX:
                await self._set_out(transaction)
        if not all(each.is_data for each in portions):
            await self._set_out(transaction)
            await self._wait_landed()

    async def _set_out(self, transaction: Transaction) -> None:
        if not (portions := self._let_go()):
            return
        await self._wait_landed(left_max=LANDING_BYTES_MAX - _size_of(portions))
        appending = transaction.append_each({each.partition: each.batch for each in portions})
        self._landings.append(_Landing(portions, asyncio.ensure_future(appending)))

    def _let_go(self) -> list[PartitionBatch]:
        portions = [*self._held.values()]
        self._held.clear()
        return portions

    async def _wait_landed(self, *, left_max: int = 0) -> None:
        """Waits until at most this many bytes are in flight."""
        while self._landings and sum(each.size for each in self._landings) > max(0, left_max):
            landing = self._landings[0]
            firsts = await landing.appended
            self._landings.popleft()
            self._touch(landing.portions, firsts)

    def _touch(
        self, portions: Sequence[PartitionBatch], firsts: Mapping[TopicPartition, int]
    ) -> None:
        for partition, batch, is_data in portions:
            if not is_data:
                continue
            stretch = stretch_of(batch.record_count, len(batch.data), firsts[partition])
            earlier = self.touched.get(partition)
            self.touched[partition] = earlier.extend_to(stretch) if earlier else stretch


def _size_of(portions: Iterable[PartitionBatch]) -> int:
    return sum(len(each.batch.data) for each in portions)
