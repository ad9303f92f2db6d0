"""Source to log: the whole write path of a pipeline, in one loop."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from headwater.connectors.source import Source
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch, Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition, Transaction, Writer
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.dead_letters.dead_letter import encode_rejects
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.journal.commits import (
    NO_TIME,
    Commit,
    OffsetRange,
    commits_home,
    encode_commit,
    encode_positions,
    load_positions,
    positions_home,
)
from headwater.pipelines.journal.control import check_not_dropping
from headwater.pipelines.journal.generations import Generations, source_parts
from headwater.pipelines.journal.internal_topics import EventTopics
from headwater.pipelines.loops.ingest.commit_rate import CommitRate
from headwater.pipelines.loops.ingest.encoder import Encoder, PartitionBatch
from headwater.pipelines.loops.ingest.missing_rows import MissingRows
from headwater.pipelines.loops.ingest.prefetch import Prefetch, Wake, prefetch
from headwater.pipelines.loops.ingest.replacement import Replacements, ReplacementStates
from headwater.pipelines.loops.ingest.signals import Controls, relay_signals
from headwater.pipelines.loops.ingest.speculative_commit import (
    OffsetMispredicted,
    SpeculativeCommit,
    Touched,
    add_batch,
)
from headwater.pipelines.loops.ingest.unserializable_rows import RejectBudget
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
OPEN_MS_MAX = 50
"""Longest time that a log transaction stays open if more changes always wait: changes are visible
only after its end."""
UNSENT_BYTES_MAX = 64 << 10
"""Bytes of data that wait to be sent together with the transaction's next append."""
IN_FLIGHT_BYTES_MAX = 1 << 20
"""Bytes in flight: appends are sent without waiting for each answer, because the log shares our
processors."""
STOP_AFTER = StopAfter()


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
    await check_not_dropping(log, pipeline)
    positions = await load_positions(log, pipeline)
    resume_from = source_parts(positions)
    report(OffsetsApplied(pipeline, SOURCE, resume_from))
    report(StateChanged(pipeline, SOURCE, "", TaskState.RUNNING))
    encoder, commit_rate = new_encoder(Generations.of(positions)), CommitRate(limits.batch_wait_ms)
    notices, topic_ids = EventTopics(log, pipeline), TopicIds(log)
    speculation = SpeculativeCommit()
    replacements = Replacements.of(pipeline, log, encoder, positions)
    begin = partial(
        _LogTransaction,
        pipeline,
        encoder,
        notices,
        clock,
        limits,
        commit_rate,
        topic_ids,
        speculation,
        replacements,
    )
    states = ReplacementStates(pipeline, SOURCE, report)
    budget = RejectBudget(pipeline, SOURCE, stop_after)
    states.report_changes(replacements.stored)
    async with (
        aclosing(encoder),
        prefetch(source.changes(resume_from), encoder, clock) as batches,
        relay_signals(source, controls, resume_from),
        aclosing(MissingRows(log, batches.wake)) as missing,
    ):
        await missing.follow(replacements.complete)
        while (first := await batches.next_or_wake()) is not None:
            if isinstance(first, Wake):
                await _delete_missing(missing, replacements, writer, begin, report)
                states.report_changes(replacements.stored)
                continue
            filled = begin()
            try:
                async with writer.transaction() as transaction, filled:
                    batch: ChangeBatch | None = first
                    while batch is not None:
                        await filled.append(transaction, batch)
                        batch = await filled.next_batch(batches)
                    commit_rate.take_token(clock.monotonic_ms())
                    await filled.close(transaction)
            except OffsetMispredicted:
                again, filled = speculation.batches, begin()
                speculation.keep_nothing()
                async with writer.transaction() as transaction, filled:
                    for each in again:
                        encoder.start_batch(each, now_ms=clock.now_ms())
                        await filled.append(transaction, each)
                    await filled.close(transaction)
            speculation.note_commit(filled.touched)
            await source.acknowledge(filled.positions)
            for line in filled.reports():
                report(line)
            if (remark := budget.count(filled.rows, filled.rejected)) is not None:
                report(remark)
            states.report_changes(replacements.stored)
            await _delete_missing(missing, replacements, writer, begin, report)
            states.report_changes(replacements.stored)
        while replacements.complete:
            await _delete_missing(missing, replacements, writer, begin, report, waits=True)
        states.report_changes(replacements.stored)


async def _delete_missing(
    missing: MissingRows,
    replacements: Replacements,
    writer: Writer,
    begin: Callable[[], "_LogTransaction"],
    report: Reporter,
    *,
    waits: bool = False,
) -> None:
    """Appends deletes of rows that a re-read has not found, if some are known by now. The last ones
    end the re-read. `waits` until some are known."""
    await missing.follow(replacements.complete)
    if not (waits or missing.is_ready):
        return
    found = await missing.take()
    if not found.deletes and found.ends is None:
        return
    filled = begin()
    async with writer.transaction() as transaction, filled:
        filled.speculation.keep_nothing()
        for deletes in found.deletes:
            await filled.append_from_log(transaction, deletes)
        await filled.flush(transaction)
        if found.ends is None:
            filled.parts[found.done.part] = found.done.text()
        else:
            filled.parts |= replacements.end_at(found.done, found.ends)
        await filled.close(transaction)
    filled.speculation.note_commit(filled.touched)
    for each in filled.reports():
        report(each)
    await missing.follow(replacements.complete)


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


class _Append(NamedTuple):
    """Data or schemas in flight to the log."""

    batches: Sequence[PartitionBatch]
    offsets: asyncio.Future[Mapping[TopicPartition, int]]

    @property
    def size(self) -> int:
        return _size_of(self.batches)


@dataclass(slots=True)
class _LogTransaction:
    """One transaction of the log while it fills; an abort discards everything."""

    pipeline: str
    encoder: Encoder
    notices: EventTopics
    clock: Clock
    limits: IngestLimits
    commit_rate: CommitRate
    topic_ids: "TopicIds"
    speculation: SpeculativeCommit
    replacements: Replacements
    positions: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str | None] = field(default_factory=dict)
    """The position parts that are not the source's."""
    touched: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    tallies: dict[str, _Tally] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)
    switched: set[str] = field(default_factory=set)
    dead_letters: list[DeadLettersAdded] = field(default_factory=list)
    is_at_boundary: bool = False
    has_changes: bool = False
    """Whether it has rows that were not read, but streamed."""
    bytes: int = 0
    opened_ms: int = field(init=False)
    _in_flight: deque[_Append] = field(default_factory=deque, init=False)
    """The last appends; the next batches are prepared meanwhile."""
    _unsent: dict[TopicPartition, PartitionBatch] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.speculation.begin()
        self.opened_ms = self.clock.monotonic_ms()

    async def __aenter__(self) -> None:
        """Waits for appends in flight before the transaction ends, in every case."""

    async def __aexit__(self, *failure: object) -> None:
        await let_go(*(each.offsets for each in self._in_flight))

    async def append(self, transaction: Transaction, batch: ChangeBatch) -> None:
        self.speculation.keep(batch)
        if batch.replacements:
            self.speculation.keep_nothing()
            await self.flush(transaction)
            taken = await self.replacements.take(batch, self.touched, now_ms=self.clock.now_ms())
            self.parts |= taken.parts
            self.switched |= taken.switched
            await self._append_soon(transaction, taken.schemas)
        for changes in batch.tables:
            if len(changes):
                await self._append_table(transaction, changes)
                self.has_changes |= not _was_read(changes)
        self.parts |= self.replacements.end(batch)
        rejects = [*batch.rejects, *self.encoder.rejects]
        self.encoder.rejects.clear()
        if rejects:
            for partition, encoded in encode_rejects(
                self.pipeline, rejects, now_ms=self.clock.now_ms()
            ):
                await transaction.append(partition, encoded)
            self.dead_letters += [
                DeadLettersAdded(self.pipeline, SOURCE, str(reject.table), 1, reject.problem)
                for reject in rejects
            ]
        for message in batch.notices:
            async for partition, encoded in self.notices.encode(
                message, now_ms=self.clock.now_ms()
            ):
                await transaction.append(partition, encoded)
        self.positions |= batch.positions
        self.is_at_boundary = bool(batch.positions)

    async def next_batch(self, batches: Prefetch) -> ChangeBatch | None:
        """Returns more changes for this transaction: the rest of the source's own transaction,
        changes before `batch_wait` permits the next commit, and for a moment those that are
        there."""
        if not self.is_at_boundary:
            batch = await batches.next()
            assert batch is not None, "a source ends between its transactions"
            return batch
        if self.bytes >= self.limits.transaction_bytes_max:
            return None
        now_ms = self.clock.monotonic_ms()
        left_ms = self.commit_rate.left_ms(now_ms)
        if left_ms <= 0 and now_ms >= self.opened_ms + OPEN_MS_MAX:
            return None
        found = await batches.next_within(left_ms)
        is_due = self.commit_rate.left_ms(self.clock.monotonic_ms()) <= 0
        if found is not None and is_due and self.has_changes and _has_rows_read(found):
            batches.put_back(found)  # it takes longer than the changes need to be readable
            return None
        return found

    async def close(self, transaction: Transaction) -> None:
        """Ends the transaction: position and boundary are sent last, together with batches not yet
        sent.

        The boundary names the offsets of all batches. It uses predicted offsets only if everything
        can be written again after a misprediction.
        """
        await self._wait_appended()
        touched = self.speculation.predict(self.touched, self._unsent.values())
        if touched is None:
            await self.flush(transaction)
            touched = dict(self.touched)
        parts = {**self.positions, **self.parts}
        position = encode_positions(self.pipeline, parts, now_ms=self.clock.now_ms())
        boundary = await self._boundary(touched)
        unsent = self._take_unsent()
        last = {each.partition: each.batch for each in unsent}
        last[positions_home(self.pipeline)] = position
        last[commits_home(self.pipeline)] = boundary
        self._touch(unsent, await transaction.append_each(last))
        self.speculation.check(touched, self.touched)

    async def flush(self, transaction: Transaction) -> None:
        """Waits until the log has everything so far."""
        await self._send(transaction)
        await self._wait_appended()

    async def _boundary(self, touched: Touched) -> Batch:
        times_ms = [each.committed_ms for each in self.tallies.values()]
        commit = Commit(
            pipeline=self.pipeline,
            # Deletes of a re-read alone come later than their commit.
            committed_ms=max(times_ms, default=NO_TIME) if self.positions else NO_TIME,
            positions=self.positions,
            touched=touched,
            topic_ids=await self.topic_ids.of(sorted({each.topic for each in touched})),
            truncated=frozenset(self.truncated),
            switched=frozenset(self.switched),
        )
        return encode_commit(commit, now_ms=self.clock.now_ms())

    @property
    def rows(self) -> Mapping[str, int]:
        return {table: each.rows for table, each in self.tallies.items()}

    @property
    def rejected(self) -> Mapping[str, int]:
        return Counter(each.table for each in self.dead_letters)

    def reports(self) -> list[Report]:
        now_ms = self.clock.now_ms()
        moved = [
            RowsMoved(
                self.pipeline, SOURCE, table, each.rows, each.bytes, each.committed_ms, now_ms
            )
            for table, each in self.tallies.items()
        ]
        return [*moved, *self.dead_letters, OffsetsApplied(self.pipeline, SOURCE, self.positions)]

    async def append_from_log(self, transaction: Transaction, changes: TableChanges) -> None:
        await self._append_table(transaction, changes, is_from_log=True)

    async def _append_table(
        self, transaction: Transaction, changes: TableChanges, *, is_from_log: bool = False
    ) -> None:
        tally = self.tallies.setdefault(str(changes.schema.table), _Tally())
        tally.rows += len(changes)
        tally.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        encoding = self.encoder.encode(changes, now_ms=self.clock.now_ms(), is_from_log=is_from_log)
        async with aclosing(encoding) as encoded:
            async for batches in encoded:
                for each in batches:
                    if not each.is_data:
                        # The encoder has already counted the schema as stored.
                        self.speculation.keep_nothing()
                        continue
                    if changes.is_truncate:
                        self.truncated.add(each.partition.topic)
                    tally.bytes += len(each.batch.data)
                    self.bytes += len(each.batch.data)
                await self._append_soon(transaction, batches)

    async def _append_soon(
        self, transaction: Transaction, batches: Sequence[PartitionBatch]
    ) -> None:
        """Delays small batches to send them with the next append; nothing passes a schema."""
        for each in batches:
            size = _size_of([*self._unsent.values(), each])
            if each.partition in self._unsent or size > UNSENT_BYTES_MAX:
                await self._send(transaction)
            self._unsent[each.partition] = each
            if len(each.batch.data) > UNSENT_BYTES_MAX:
                await self._send(transaction)
        if not all(each.is_data for each in batches):
            await self.flush(transaction)

    async def _send(self, transaction: Transaction) -> None:
        if not (batches := self._take_unsent()):
            return
        await self._wait_appended(left_max=IN_FLIGHT_BYTES_MAX - _size_of(batches))
        appending = transaction.append_each({each.partition: each.batch for each in batches})
        self._in_flight.append(_Append(batches, asyncio.ensure_future(appending)))

    def _take_unsent(self) -> list[PartitionBatch]:
        batches = [*self._unsent.values()]
        self._unsent.clear()
        return batches

    async def _wait_appended(self, *, left_max: int = 0) -> None:
        """Waits until at most this many bytes are in flight."""
        while self._in_flight and sum(each.size for each in self._in_flight) > max(0, left_max):
            first = self._in_flight[0]
            offsets = await first.offsets
            self._in_flight.popleft()
            self._touch(first.batches, offsets)

    def _touch(
        self, batches: Sequence[PartitionBatch], offsets: Mapping[TopicPartition, int]
    ) -> None:
        for partition, batch, is_data in batches:
            if is_data:
                size, first = len(batch.data), offsets[partition]
                add_batch(self.touched, partition, batch.record_count, size, first)


def _has_rows_read(batch: ChangeBatch) -> bool:
    return any(_was_read(each) for each in batch.tables if len(each))


def _was_read(changes: TableChanges) -> bool:
    return bool(changes.operations[0].as_py() in (Operation.READ, Operation.REREAD))


def _size_of(batches: Iterable[PartitionBatch]) -> int:
    return sum(len(each.batch.data) for each in batches)
